"""Nodes on hosts whose networks are not simple: which address, which port and which interface they are given and find."""

import contextlib
import pathlib

import pytest

from cluster import MUSTER, Process
from networks import Hosts
from nodes import node, said

LIMIT = 60
PORT = 8118  # of a network of the test's own
FORWARD = pathlib.Path(__file__).resolve().parent / "programs" / "forward.py"

LINES = """
    c = join()
    say(addresses=[c.world.member(rank).address.decode() for rank in range(c.size)], sum=c.world.allreduce([c.rank + 1]))
    c.world.barrier()
    c.leave()
"""


@contextlib.contextmanager
def job(hosts, sched_host, workers, lines=LINES, **scheduler_settings):
    """A scheduler on the first host, and a worker on each host with these settings; what a host has by default is beaten."""
    settings = {"MS_SCHED_HOST": sched_host, "MS_SCHED_PORT": PORT, "MS_WORKER_NUM": max(1, len(workers))}
    with contextlib.ExitStack() as stack:
        def start(host, program, name, own):
            env = {**settings, "MUSTER_HOST_ID": f"host {host}", **own}
            return stack.enter_context(Process(hosts.command(host, program), env, name))

        scheduler = start(0, [MUSTER, "scheduler"], "scheduler", {"MS_ROLE": "MS_SCHED", **scheduler_settings})
        yield scheduler, [
            start(rank, node(lines), f"worker {rank}", {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": rank, **own})
            for rank, own in enumerate(workers)
        ]


def succeeds(scheduler, workers):
    """The job ends well; what the nodes were told of each other's addresses."""
    for process in (*workers, scheduler):
        assert process.wait(LIMIT) == 0, process.describe()
    assert [said(worker)["sum"] for worker in workers] == [[3], [3]]
    told = [said(worker)["addresses"] for worker in workers]
    assert told[0] == told[1]
    return told[0]


def test_a_host_that_may_bind_any_address_knows_which_are_its_own(tmp_path):
    """Its launcher must not take the other host's address for its own, and start a scheduler there."""
    with Hosts("net") as hosts:
        hosts.sh(0, "echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind", may_lack=True)
        second = "10.77.0.12"  # of the host with the scheduler: packets to it leave from that host's first address
        hosts.sh(1, f"ip address add {second}/24 dev net0")
        options = ["--worker_num=2", "--local_worker_num=1", f"--master_addr={second}", f"--master_port={PORT}"]
        with contextlib.ExitStack() as stack:
            def launch(host, rank):
                own = [f"--node_rank={rank}", "--join", f"--log_dir={tmp_path / str(rank)}"]
                command = hosts.command(host, [MUSTER, "run", *options, *own, *node(LINES)])
                return stack.enter_context(Process(command, {"MUSTER_HOST_ID": f"host {host}"}, f"launcher {rank}"))

            launchers = [launch(1, 0), launch(0, 1)]
            for launcher in launchers:
                assert launcher.wait(LIMIT) == 0, launcher.describe()


def of_ipv6(hosts, network, prefix):
    """Gives this network addresses that begin so, and no other."""
    for host in range(2):
        name = f"net{hosts.networks.index(network)}"
        hosts.sh(host, f"echo 0 > /proc/sys/net/ipv6/conf/{name}/accept_dad; ip address flush dev {name}; "
                       f"ip address add {prefix}{host + 1}/64 dev {name} nodad", may_lack=True)


def test_hosts_that_have_ipv6_only():
    with Hosts("net") as hosts:
        of_ipv6(hosts, "net", "fd77::")
        with job(hosts, "fd77::1", [{}, {}]) as (scheduler, workers):
            first, second = succeeds(scheduler, workers)
            assert first.startswith("[fd77::1]:") and second.startswith("[fd77::2]:")


def test_an_address_of_one_link_keeps_its_link_on_nodes():
    """The scheduler's address holds on one of two links, and so do those that the nodes find for themselves."""
    with Hosts("other", "net") as hosts:
        of_ipv6(hosts, "other", "fe80::76:")
        of_ipv6(hosts, "net", "fe80::77:")
        with job(hosts, "fe80::77:1%net1", [{}, {}]) as (scheduler, workers):
            first, second = succeeds(scheduler, workers)
            assert first.startswith("[fe80::77:1") and second.startswith("[fe80::77:2")


def with_bridge_and_dead_veth(hosts):
    """Each host has a bridge with the same address, as Docker makes it, and an interface that leads nowhere."""
    for host in range(2):
        bridge = "ip link add docker0 type bridge && ip address add 172.17.0.1/16 dev docker0 && ip link set docker0 up"
        hosts.sh(host, bridge, may_lack=True)
        hosts.sh(host, "ip link add port0 type veth peer name inside0 && ip link set port0 master docker0")
        hosts.sh(host, "ip link set port0 up && ip link set inside0 up")
        hosts.sh(host, f"ip link add dead0 type veth peer name dead1 && ip address add 10.99.0.{host + 1}/24 dev dead0")
        hosts.sh(host, "ip link set dead0 up")


def test_a_bridge_that_each_host_has_and_a_dead_interface_are_found_by_nobody():
    with Hosts("net") as hosts:
        with_bridge_and_dead_veth(hosts)
        with job(hosts, hosts.address("net", 0), [{}, {}]) as (scheduler, workers):
            told = succeeds(scheduler, workers)
            assert [address.split(":")[0] for address in told] == [hosts.address("net", host) for host in range(2)]


def test_a_bridge_that_each_host_has_and_a_dead_interface_do_not_mislead_where_they_are_told():
    """Both listen on the same port: at the bridge's address each would meet itself."""
    with Hosts("net") as hosts:
        with_bridge_and_dead_veth(hosts)
        own = [{"MS_WORKER_IP": f"172.17.0.1,10.99.0.{host + 1},{hosts.address('net', host)}",
                "MUSTER_PORT_RANGE": "7000-7000"} for host in range(2)]
        with job(hosts, hosts.address("net", 0), own) as (scheduler, workers):
            assert succeeds(scheduler, workers) == ["172.17.0.1:7000", "172.17.0.1:7000"]


@pytest.mark.parametrize("names", ["=net1", "net1", "^net0,docker"])
def test_the_interfaces_that_count_are_named(names):
    """The scheduler is reached over one network, and the nodes reach each other over another."""
    with Hosts("control", "data") as hosts:
        with_bridge_and_dead_veth(hosts)
        own = [{"MUSTER_IFNAME": names}, {"MUSTER_IFNAME": names}]
        with job(hosts, hosts.address("control", 0), own) as (scheduler, workers):
            told = succeeds(scheduler, workers)
            assert [address.split(":")[0] for address in told] == [hosts.address("data", host) for host in range(2)]


def test_an_interface_that_is_not_there_is_an_error_at_once_that_lists_those_that_are():
    with Hosts("net") as hosts:
        with_bridge_and_dead_veth(hosts)
        with job(hosts, hosts.address("net", 0), [{"MUSTER_IFNAME": "=ib0"}]) as (_, workers):
            assert workers[0].wait(LIMIT) == 1, workers[0].describe()
            words = said(workers[0])
            assert words["error"] == "BIND", words
            assert "MUSTER_IFNAME is \"=ib0\", which leaves no address of this host" in words["sentence"], words
            assert "net0 (10.77.0.1)" in words["sentence"] and "dead0 (10.99.0.1, down)" in words["sentence"], words


def behind_firewall(hosts):
    """Between the hosts only packets from and to these ports pass."""
    for host in range(2):
        for number, ports in enumerate(("dport 8118", "sport 8118", "dport 7000-7003", "sport 7000-7003")):
            hosts.sh(host, f"ip rule add to 10.77.0.0/24 ipproto tcp {ports} lookup main pref {100 + number}", may_lack=True)
        hosts.sh(host, "ip rule add to 10.77.0.0/24 ipproto tcp blackhole pref 200")


def test_a_firewall_that_lets_a_range_of_ports_through():
    with Hosts("net") as hosts:
        behind_firewall(hosts)
        own = [{"MUSTER_PORT_RANGE": "7000-7003"}] * 2
        with job(hosts, hosts.address("net", 0), own) as (scheduler, workers):
            assert succeeds(scheduler, workers) == [f"{hosts.address('net', host)}:7000" for host in range(2)]


def test_a_range_whose_ports_are_all_taken_is_told_with_those_who_have_them():
    with Hosts("net") as hosts:
        holder = hosts.command(0, [FORWARD, "10.77.0.1:7000=10.77.0.1:1", "10.77.0.1:7001=10.77.0.1:1"])
        with Process(holder, name="holder") as held:
            held.wait_for("carries", LIMIT)
            with job(hosts, hosts.address("net", 0), [{"MUSTER_PORT_RANGE": "7000-7001"}]) as (_, workers):
                assert workers[0].wait(LIMIT) == 1, workers[0].describe()
                words = said(workers[0])
                assert words["error"] == "BIND", words
                for port in (7000, 7001):
                    assert f"{port} is held by process {held.pid} (" in words["sentence"], words


def test_a_node_behind_nat_tells_the_address_at_which_others_reach_it():
    """The second host has no way to the first network. A forwarder on the first host stands for the NAT: it carries what comes to
    an outer port to the inner node, and what comes to its inner address to the scheduler and the outer node, of which both addresses
    are told."""
    with Hosts("outer", "inner") as hosts:
        hosts.sh(1, "ip link set net0 down && ip address flush dev net0")
        outer, box, inner = (hosts.address(*place) for place in (("outer", 0), ("inner", 0), ("inner", 1)))
        ways = [f"{box}:{PORT}={outer}:{PORT}", f"{box}:7000={outer}:7000", f"{outer}:7001={inner}:7001"]
        with Process(hosts.command(0, [FORWARD, *ways]), name="nat") as nat:
            nat.wait_for("carries", LIMIT)
            own = [
                {"MS_WORKER_IP": outer, "MUSTER_PORT_RANGE": "7000-7000", "MUSTER_ADVERTISE": f"{outer},{box}"},
                {"MS_SCHED_HOST": box, "MUSTER_ADVERTISE": f"{outer}:7001"},
            ]
            with job(hosts, outer, own) as (scheduler, workers):
                assert succeeds(scheduler, workers) == [f"{outer}:7000", f"{outer}:7001"]


def test_where_no_address_leads_to_a_peer_each_is_listed_with_how_it_failed():
    lines = """
        c = join()
        say(broken=fails(c.world.allreduce, [c.rank]))
        c.leave()
    """
    with Hosts("net") as hosts:
        own = [{"MUSTER_ADVERTISE": f"192.0.2.{host + 1}:7000,{hosts.address('net', host)}:9"} for host in range(2)]
        with job(hosts, hosts.address("net", 0), own, lines) as (_, workers):
            for worker in workers:
                assert worker.wait(LIMIT) == 0, worker.describe()
                words = said(worker)["broken"]
                assert words["error"] == "LINK", words
            sentences = [said(worker)["broken"]["sentence"] for worker in workers]
            ways = [f"192.0.2.{host + 1}:7000: Network is unreachable (os error 101); "
                    f"{hosts.address('net', host)}:9: Connection refused (os error 111)" for host in range(2)]
            assert any(way in sentence for way in ways for sentence in sentences), sentences


def test_a_scheduler_binds_another_address_than_the_one_that_nodes_are_told():
    """Nodes reach it at an address of a service, which its host has not."""
    with Hosts("net") as hosts:
        service = "10.77.9.9"
        way = f"{hosts.address('net', 0)}:9118={hosts.address('net', 0)}:{PORT}"
        with Process(hosts.command(0, [FORWARD, way]), name="service") as forwarder:
            forwarder.wait_for("carries", LIMIT)
            own = [{"MS_SCHED_HOST": hosts.address("net", 0), "MS_SCHED_PORT": 9118}] * 2
            with job(hosts, service, own, MUSTER_SCHED_BIND="*") as (scheduler, workers):
                succeeds(scheduler, workers)
            with job(hosts, service, []) as (scheduler, _):
                assert scheduler.wait(LIMIT) != 0
                assert f'MS_SCHED_HOST is "{service}"' in scheduler.stderr, scheduler.describe()
                assert "set MUSTER_SCHED_BIND=*" in scheduler.stderr, scheduler.describe()


def test_a_rank_that_runs_the_scheduler_at_every_address_tells_the_one_that_others_reach():
    with Hosts("net") as hosts, contextlib.ExitStack() as stack:
        master = {"MASTER_ADDR": hosts.address("net", 0), "MASTER_PORT": PORT, "WORLD_SIZE": 2, "MUSTER_SCHED_BIND": "*"}
        ranks = []
        for rank in range(2):
            own = {"RANK": rank, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MUSTER_HOST_ID": f"host {rank}"}
            process = Process(hosts.command(rank, node(LINES)), {**master, **own}, f"rank {rank}")
            ranks.append(stack.enter_context(process))
        for process in ranks:
            assert process.wait(LIMIT) == 0, process.describe()
        told = said(ranks[1])["addresses"]
        assert [address.split(":")[0] for address in told] == [hosts.address("net", rank) for rank in range(2)]


@pytest.mark.parametrize("address, names", [("10.77.0.255", "multicast or broadcast")])
def test_the_broadcast_address_of_a_network_is_refused_and_not_bound(address, names):
    with Hosts("net") as hosts:
        with job(hosts, address, []) as (scheduler, _):
            assert scheduler.wait(LIMIT) != 0
            assert address in scheduler.stderr and names in scheduler.stderr, scheduler.describe()
