"""Settings that are wrong are told at once: the variable, its value, and what would be right. And which of several counts."""

import socket

import pytest

from cluster import Cluster, Process, reserved_port
from nodes import JOIN_AND_LEAVE, alone_fails_at_once, failed_at_once, node, said

WORKER = {"MS_ROLE": "MS_WORKER", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": "8118", "MS_WORKER_NUM": "2"}
SCHEDULER = {**WORKER, "MS_ROLE": "MS_SCHED"}

# The settings, and what the sentence must say.
WRONG = {
    "unknown role": ({**WORKER, "MS_ROLE": "MS_BOSS"}, ["MS_ROLE", '"MS_BOSS"', "MS_SCHED", "MS_WORKER", "MS_PSERVER"]),
    "role in lower case": ({**WORKER, "MS_ROLE": "ms_worker"}, ["MS_ROLE", '"ms_worker"', "MS_WORKER"]),
    "port with a letter": ({**WORKER, "MS_SCHED_PORT": "80x"}, ["MS_SCHED_PORT", '"80x"', "1024 to 65535"]),
    "port with a letter at its end": ({**WORKER, "MS_SCHED_PORT": "8118x"}, ["MS_SCHED_PORT", '"8118x"', "1024 to 65535"]),
    "port too low": ({**WORKER, "MS_SCHED_PORT": "80"}, ["MS_SCHED_PORT", '"80"', "1024 to 65535"]),
    "port too high": ({**WORKER, "MS_SCHED_PORT": "65536"}, ["MS_SCHED_PORT", '"65536"', "1024 to 65535"]),
    "port huge": ({**SCHEDULER, "MS_SCHED_PORT": "9" * 40}, ["MS_SCHED_PORT", '"9999', "1024 to 65535"]),
    "port negative": ({**WORKER, "MS_SCHED_PORT": "-8118"}, ["MS_SCHED_PORT", '"-8118"', "1024 to 65535"]),
    "port zero in a worker": ({**WORKER, "MS_SCHED_PORT": "0"}, ["MS_SCHED_PORT", '"0"', "1024 to 65535"]),
    "port zero in a scheduler": ({**SCHEDULER, "MS_SCHED_PORT": "0"}, ["MS_SCHED_PORT", '"0"', "1024 to 65535"]),
    "no port": ({**WORKER, "MS_SCHED_PORT": None}, ["MS_SCHED_PORT", "not set", "1024 to 65535"]),
    "no host": ({**WORKER, "MS_SCHED_HOST": None}, ["MS_SCHED_HOST", "not set"]),
    "empty host": ({**WORKER, "MS_SCHED_HOST": ""}, ["MS_SCHED_HOST", "not set"]),
    "host with a port": ({**WORKER, "MS_SCHED_HOST": "10.0.0.1:8118"}, ["MS_SCHED_HOST", '"10.0.0.1:8118"', "without a port"]),
    "host of many hosts": ({**SCHEDULER, "MS_SCHED_HOST": "224.0.0.1"}, ["MS_SCHED_HOST", '"224.0.0.1"', "not of multicast"]),
    "host that is everybody": ({**WORKER, "MS_SCHED_HOST": "255.255.255.255"}, ["MS_SCHED_HOST", "not of multicast or broadcast"]),
    "bound address no address": ({**SCHEDULER, "MUSTER_SCHED_BIND": "eth0"}, ["MUSTER_SCHED_BIND", '"eth0"', "* for every address"]),
    "told port no port": ({**WORKER, "MUSTER_ADVERTISE": "10.0.0.1:x"}, ["MUSTER_ADVERTISE", '"10.0.0.1:x"', "10.0.0.1:7000"]),
    "range without an end": ({**WORKER, "MUSTER_PORT_RANGE": "7000"}, ["MUSTER_PORT_RANGE", '"7000"', "7000-7999"]),
    "interfaces without a name": ({**WORKER, "MUSTER_IFNAME": "^"}, ["MUSTER_IFNAME", '"^"', "^docker,lo"]),
    "no number of workers": ({**WORKER, "MS_WORKER_NUM": None}, ["MS_WORKER_NUM", "not set"]),
    "workers in words": ({**WORKER, "MS_WORKER_NUM": "two"}, ["MS_WORKER_NUM", '"two"', "whole number"]),
    "workers with a letter": ({**WORKER, "MS_WORKER_NUM": "2x"}, ["MS_WORKER_NUM", '"2x"', "whole number"]),
    "workers with a fraction": ({**WORKER, "MS_WORKER_NUM": "2.5"}, ["MS_WORKER_NUM", '"2.5"', "whole number"]),
    "no workers": ({**WORKER, "MS_WORKER_NUM": "0"}, ["MS_WORKER_NUM", '"0"', "from 1"]),
    "servers negative": ({**SCHEDULER, "MS_SERVER_NUM": "-1"}, ["MS_SERVER_NUM", '"-1"', "from 0"]),
    "time-out in words": ({**WORKER, "MS_CLUSTER_TIMEOUT": "10s"}, ["MS_CLUSTER_TIMEOUT", '"10s"', "seconds"]),
    "heartbeat too short": ({**WORKER, "MS_NODE_TIMEOUT": "0.1"}, ["MS_NODE_TIMEOUT", '"0.1"', "0.5"]),
    "heartbeat no number": ({**WORKER, "MS_NODE_TIMEOUT": "nan"}, ["MS_NODE_TIMEOUT", '"nan"', "seconds"]),
    "rank no number": ({**WORKER, "RANK_ID": "first"}, ["RANK_ID", '"first"', "whole number"]),
    "own address no address": ({**WORKER, "MS_WORKER_IP": "eth0"}, ["MS_WORKER_IP", '"eth0"', "IP addresses"]),
    "flag no flag": ({**WORKER, "MS_ENABLE_RECOVERY": "yes"}, ["MS_ENABLE_RECOVERY", '"yes"', "0 or 1"]),
    "log level": ({**WORKER, "MUSTER_LOG": "loud"}, ["MUSTER_LOG", '"loud"', "debug"]),
    "our own name wins and is named": ({**WORKER, "MUSTER_SCHED_PORT": "81x"}, ["MUSTER_SCHED_PORT", '"81x"']),
    "a number of workers without a role": ({"MS_WORKER_NUM": "4"}, ["MS_WORKER_NUM", '"4"', "MS_ROLE"]),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_setting_is_named_with_its_value_and_what_would_be_right(kind):
    env, parts = WRONG[kind]
    alone_fails_at_once(env, "CONFIG", *parts)


def test_a_scheduler_s_host_that_has_no_address():
    host = "no-such-host.invalid"
    with Process(node(), {**SCHEDULER, "MS_SCHED_HOST": host}) as process:
        # How long a name service takes to say no is not ours to promise.
        assert process.wait(timeout=60) == 1
        words = said(process)
        assert words["error"] == "CONFIG", words
        assert "MS_SCHED_HOST" in words["sentence"] and host in words["sentence"], words
        assert "set MUSTER_SCHED_BIND=*" in words["sentence"], words


def test_an_ipv4_address_in_the_form_of_ipv6_is_that_address():
    with reserved_port() as port:
        mapped = {"MS_SCHED_HOST": "::ffff:127.0.0.1", "MS_SCHED_PORT": port, "MS_WORKER_NUM": 1}
        with Process(node(), {**mapped, "MS_ROLE": "MS_SCHED"}) as scheduler, Process(node(), {**mapped, "MS_ROLE": "MS_WORKER"}) as one:
            assert one.wait(timeout=30) == 0 and scheduler.wait(timeout=30) == 0


def test_a_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        alone_fails_at_once({**SCHEDULER, "MS_SCHED_PORT": port}, "BIND", f"127.0.0.1:{port}", "in use", "MS_SCHED_PORT")


def test_an_address_that_is_not_of_this_host():
    # TEST-NET-3: nobody has it.
    alone_fails_at_once({**SCHEDULER, "MS_SCHED_HOST": "203.0.113.7"}, "BIND", "203.0.113.7:8118", "MS_SCHED_HOST")
    alone_fails_at_once({**WORKER, "MS_WORKER_IP": "203.0.113.7"}, "BIND", "203.0.113.7", "MS_WORKER_IP")


def test_rank_0_is_not_on_the_first_host_of_a_launchers_list():
    step = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "203.0.113.7,203.0.113.8"}
    own = socket.gethostname()
    words = ("SLURM_STEP_NODELIST", f"rank 0 runs the scheduler, and is on {own}: set MASTER_ADDR={own} for all ranks", "set MUSTER_SCHED_BIND=*")
    alone_fails_at_once({**step, "MUSTER_SCHED_PORT": "8118"}, "BIND", "203.0.113.7:8118", *words)


def test_a_node_binds_and_tells_the_address_that_it_was_given():
    lines = """
        c = join()
        say(addresses=[c.world.member(rank).address.decode() for rank in range(2)], sum=c.world.allreduce([1]))
        c.leave()
    """
    with Cluster(node(lines), workers=2, started=1) as cluster:
        cluster.start_worker(env={"MS_WORKER_IP": "127.0.0.2"})
        for worker in cluster.succeed(timeout=30):
            first, second = said(worker)["addresses"]
            assert first.startswith("127.0.0.1:") and second.startswith("127.0.0.2:")
            assert said(worker)["sum"] == [2]


@pytest.mark.parametrize("role", ["MS_SCHED", "MS_WORKER"])
def test_recovery_needs_a_path(role):
    sentence = alone_fails_at_once({**WORKER, "MS_ROLE": role, "MS_ENABLE_RECOVERY": "1"}, "CONFIG", "MS_ENABLE_RECOVERY")
    assert "MS_RECOVERY_PATH" in sentence and "directory" in sentence


def test_what_this_version_cannot_do_may_be_turned_off():
    with Process(node(), {"MS_ENABLE_RECOVERY": "0", "MUSTER_ENABLE_SSL": "0"}) as alone:
        assert alone.wait(timeout=30) == 0 and alone.stderr == ""


def test_an_unknown_name_is_a_warning_in_the_environment_and_an_error_in_code():
    with Process(node(), {"MUSTER_SCHED_PROT": "9", "MUSTER_LOGS": "debug"}) as alone:
        assert alone.wait(timeout=30) == 0
        lines = alone.stderr.splitlines()
        assert len(lines) == 2, lines
        assert "MUSTER_LOGS" in lines[0] and "MUSTER_LOG?" in lines[0]
        assert "MUSTER_SCHED_PROT" in lines[1] and "MUSTER_SCHED_PORT?" in lines[1]
    alone_fails_at_once({}, "CONFIG", "sched_prot", "sched_port", lines='join({"sched_prot": 9})')
    alone_fails_at_once({}, "CONFIG", "sched_port", '"9x"', lines='join({"sched_port": "9x"})')


def test_code_beats_muster_variables_which_beat_ms_variables():
    """The right port is where the most important source is; all others name ports on which nobody listens."""
    code = 'c = join({"sched_port": os.environ["RIGHT_PORT"]}); c.leave()'
    with reserved_port() as wrong, reserved_port() as wrong_too:
        with Cluster(node(), workers=3, started=0) as cluster:
            cluster.start_worker(env={"MUSTER_SCHED_PORT": cluster.port, "MS_SCHED_PORT": wrong})
            in_code = {"RIGHT_PORT": cluster.port, "MUSTER_SCHED_PORT": wrong, "MS_SCHED_PORT": wrong_too}
            cluster.start_worker(program=node(code), env=in_code)
            # A variable that does not count may hold anything.
            cluster.start_worker(env={"MUSTER_SCHED_PORT": cluster.port, "MS_SCHED_PORT": "80x"})
            cluster.succeed(timeout=30)


def test_a_launchers_variables_count_less_than_both():
    with Cluster(node(), workers=2, started=0, numbered=False) as cluster:
        # RANK_SIZE says 7, MS_WORKER_NUM 2; RANK_ID says 0, MUSTER_RANK_ID 1.
        cluster.start_worker(env={"RANK_SIZE": "7", "RANK_ID": "0", "MUSTER_RANK_ID": "1"})
        cluster.start_worker(env={"RANK_ID": "0"})
        assert [said(worker)["rank"] for worker in cluster.succeed(timeout=30)] == [1, 0]


def test_everything_can_be_set_in_code_alone():
    lines = """
        c = join({"role": "MS_WORKER", "sched_host": "127.0.0.1", "sched_port": os.environ["AT"], "worker_num": 1,
                  "node_id": "by code"}, environment=False)
        c.leave()
    """
    with Cluster(node(), workers=1, started=0) as cluster:
        # What stands in the environment does not count then, not even a mistake.
        worker = cluster.start(node(lines), {"AT": cluster.port, "MS_ROLE": "MS_BOSS"})
        assert worker.wait(timeout=30) == 0 and said(worker)["node_id"] == "by code"
        assert cluster.scheduler.wait(timeout=30) == 0


def test_an_empty_variable_counts_as_unset():
    with Process(node(), {"MS_ROLE": "", "MS_WORKER_NUM": "", "MUSTER_SCHED_PORT": ""}) as alone:
        assert alone.wait(timeout=30) == 0 and alone.stderr == ""


def test_a_node_id_that_is_too_long():
    alone_fails_at_once({**WORKER, "MS_NODE_ID": "x" * 256}, "CONFIG", "MS_NODE_ID", "255 bytes", lines=JOIN_AND_LEAVE)


def test_nothing_is_written_to_standard_output_whatever_the_level():
    with Process(node('c = init(); c.leave()'), {"MUSTER_LOG": "trace"}) as alone:
        assert alone.wait(timeout=30) == 0 and alone.stdout == "" and alone.stderr != ""
        assert all(line.startswith("muster ") for line in alone.stderr.splitlines())
    with Process(node('init({"worker_num": 0})')) as alone:
        failed_at_once(alone, "CONFIG", "worker_num", '"0"')
