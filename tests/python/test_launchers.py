"""Programs that torchrun or Open MPI starts find each other by those launchers' variables, set here by hand."""

import contextlib
import itertools
import os
import re
import signal
import socket
import textwrap
import threading

import pytest

from cluster import MUSTER, Cluster, Process, reserved_port
from launch import until
from networks import Hosts
from nodes import alone_fails_at_once, failed_at_once, listening_ports, node, said

pytestmark = pytest.mark.xdist_group("mpi")  # Open MPI's sessions are the user's

DEFAULT_PORT = 8118
TALK = "c = join(); say(everyone=c.world.allgather(c.rank)); c.leave()"
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
OPEN_MPI = tuple(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
MPICH = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")


def place(names, rank, size, master_port=None):
    """What a launcher tells one of `size` processes of one host."""
    values = dict(zip(names, (rank, size, rank, size)))
    return values if master_port is None else {**values, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": master_port}


@contextlib.contextmanager
def started(environments, lines=TALK):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Process(node(lines), env, f"rank {at}")) for at, env in enumerate(environments)]


def all_succeed(processes):
    for rank, process in enumerate(processes):
        assert process.wait(timeout=30) == 0, process.stderr
        words = said(process)
        assert words["everyone"] == list(range(len(processes)))
        assert (words["rank"], words["local_rank"], words["local_size"]) == (rank, rank, len(processes))
        assert process.stderr == ""


@pytest.mark.parametrize("names", [TORCHRUN, OPEN_MPI, MPICH], ids=["torchrun", "Open MPI", "MPICH"])
def test_rank_0_hosts_the_scheduler_two_above_the_master_port(names):
    with reserved_port() as port:
        with started([place(names, rank, 3, port - 2) for rank in range(3)]) as processes:
            all_succeed(processes)


def test_the_master_port_itself_is_left_to_torchrun():
    """torchrun listens on MASTER_PORT; what listens two above it is the scheduler, in rank 0's process."""
    lines = """
        c = join()
        if c.rank == 0:
            listening = {int(line.split()[1].rpartition(":")[2], 16) for name in ("tcp", "tcp6")
                         for line in open(f"/proc/self/net/{name}").readlines()[1:] if line.split()[3] == "0A"}
            master = int(os.environ["MASTER_PORT"])
            say(scheduler=master + 2 in listening, master=master in listening)
        say(everyone=c.world.allgather(c.rank))
        c.leave()
    """
    with reserved_port() as port:
        with started([place(TORCHRUN, rank, 2, port - 2) for rank in range(2)], lines) as processes:
            all_succeed(processes)
            assert said(processes[0])["scheduler"] is True


def test_of_two_jobs_without_identity_the_second_is_told_which_setting_chooses_another_port():
    """In a network of their own, for the port is the default one."""
    first, second = ({**place(TORCHRUN, rank, 2), "TORCHELASTIC_RUN_ID": "none"} for rank in (0, 0))
    with Hosts("control") as hosts, contextlib.ExitStack() as stack:
        holder = stack.enter_context(Process(hosts.command(0, node()), first, "the first job's rank 0"))
        until(lambda: DEFAULT_PORT in listening_ports(holder.pid), 30, "its scheduler")
        late = stack.enter_context(Process(hosts.command(0, node()), second, "the second job's rank 0"))
        failed_at_once(late, "BIND", "the default of MUSTER_SCHED_PORT", f"127.0.0.1:{DEFAULT_PORT}", "choose another port")


def test_ranks_of_one_host_need_no_address():
    with reserved_port() as port:
        settings = {"MUSTER_SCHED_PORT": port}
        with started([{**place(OPEN_MPI, rank, 2), **settings} for rank in range(2)]) as processes:
            all_succeed(processes)


@pytest.mark.parametrize("names", [TORCHRUN, OPEN_MPI], ids=["torchrun", "Open MPI"])
def test_a_launchers_only_process_is_a_cluster_of_one(names):
    with started([place(names, 0, 1, 29500)]) as processes:
        all_succeed(processes)


def test_the_innermost_launcher_wins():
    """torchrun under mpirun: both sets are there, and rightly disagree."""
    with reserved_port() as port:
        outer = {"OMPI_COMM_WORLD_RANK": 5, "OMPI_COMM_WORLD_SIZE": 6}
        with started([{**outer, **place(TORCHRUN, rank, 2, port - 2)} for rank in range(2)]) as processes:
            all_succeed(processes)


def test_our_own_names_beat_the_master_address_and_port():
    with reserved_port() as port:
        astray = {"MASTER_ADDR": "203.0.113.7", "MASTER_PORT": "29500"}
        ours = {"MS_SCHED_HOST": "127.0.0.1", "MUSTER_SCHED_PORT": port}
        with started([{**place(TORCHRUN, rank, 2), **astray, **ours} for rank in range(2)]) as processes:
            all_succeed(processes)


WRONG = {
    "rank beyond size": ({"RANK": 2, "WORLD_SIZE": 2}, ["RANK", '"2"', "WORLD_SIZE"]),
    "local rank beyond local size": (
        {"RANK": 0, "WORLD_SIZE": 4, "LOCAL_RANK": 2, "LOCAL_WORLD_SIZE": 2},
        ["LOCAL_RANK", '"2"', "LOCAL_WORLD_SIZE"],
    ),
    "more here than in all": (
        {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 4},
        ["LOCAL_WORLD_SIZE", '"4"', "WORLD_SIZE", '"2"'],
    ),
    "mpi rank beyond size": (
        {"OMPI_COMM_WORLD_RANK": 9, "OMPI_COMM_WORLD_SIZE": 4},
        ["OMPI_COMM_WORLD_RANK", '"9"', "OMPI_COMM_WORLD_SIZE", '"4"'],
    ),
    "rank no number": ({"RANK": "first", "WORLD_SIZE": 2}, ["RANK", '"first"', "whole number"]),
    "size no number": ({"RANK": 0, "WORLD_SIZE": "2x"}, ["WORLD_SIZE", '"2x"', "whole number"]),
    "local size no number": (
        {"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_RANK": 0, "OMPI_COMM_WORLD_LOCAL_SIZE": "two"},
        ["OMPI_COMM_WORLD_LOCAL_SIZE", '"two"', "whole number"],
    ),
    "master port no number": ({"RANK": 0, "WORLD_SIZE": 2, "MASTER_PORT": "29x"}, ["MASTER_PORT", '"29x"']),
    "master port leaves no room": ({"RANK": 0, "WORLD_SIZE": 2, "MASTER_PORT": "65534"}, ["MASTER_PORT", '"65534"', "65533"]),
    "node id against rank": ({"RANK": 0, "WORLD_SIZE": 2, "MS_NODE_ID": "1"}, ["MS_NODE_ID", '"1"', "RANK", '"0"']),
    "no address": ({"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": None, "MASTER_PORT": "29500"}, ["torchrun", "MASTER_ADDR"]),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_contradiction_within_one_launchers_set_is_an_error(kind):
    env, parts = WRONG[kind]
    alone_fails_at_once({"MASTER_ADDR": "127.0.0.1", **env}, "CONFIG", *parts)


def test_with_ms_role_all_of_them_are_ignored_except_rank_id():
    astray = {"RANK": "7", "WORLD_SIZE": "3x", "LOCAL_RANK": "9", "MASTER_ADDR": "203.0.113.7", "MASTER_PORT": "1",
              "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "4"}
    with Cluster(node(TALK), workers=2, started=0, numbered=False, env=astray) as cluster:
        cluster.start_worker(env={"RANK_ID": "1"})
        cluster.start_worker(env={"RANK_ID": "0"})
        workers = cluster.succeed(timeout=30)
        assert [said(worker)["rank"] for worker in workers] == [1, 0]
        assert all(process.stderr == "" for process in cluster.processes)


def test_half_a_launcher_is_a_cluster_of_one_and_a_warning():
    with Process(node(TALK), {"RANK": "1"}) as alone:
        assert alone.wait(timeout=30) == 0
        assert said(alone)["size"] == 1
        line, = alone.stderr.splitlines()
        assert "RANK is set, but WORLD_SIZE is not" in line


def listens(port):
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def test_a_second_job_on_the_same_port_is_told_so_at_once():
    """The second rank 0 cannot have the scheduler's port, and says so at once."""
    with reserved_port() as port:
        with started([place(TORCHRUN, 0, 2, port - 2)]) as (first,):
            until(lambda: listens(port), 30, f"{first.name} listens")
            with started([place(TORCHRUN, 0, 2, port - 2)]) as (second,):
                failed_at_once(second, "BIND", f"127.0.0.1:{port}", "in use")
            with started([place(TORCHRUN, 1, 2, port - 2)]) as (partner,):
                assert partner.wait(timeout=30) == 0 and first.wait(timeout=30) == 0


def ports_of(mark):
    """The ports of a launcher's job, by the words of docs/protocol.md."""
    bits = (1 << 64) - 1
    state = 0xcbf29ce484222325
    for byte in mark.encode():
        state = (state ^ byte) * 0x100000001b3 & bits
    ports = []
    while len(ports) < 8:
        state = state + 0x9e3779b97f4a7c15 & bits
        number = state
        number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9 & bits
        number = (number ^ number >> 27) * 0x94d049bb133111eb & bits
        port = 20000 + (number ^ number >> 31) % 10000
        if port not in ports:
            ports.append(port)
    return ports


def of_job(job, size=2, **more):
    """What Open MPI tells the ranks of this job."""
    return [{**place(OPEN_MPI, rank, size), "PMIX_NAMESPACE": job, **more} for rank in range(size)]


def a_free_job(test):
    """The number of a job on none of whose ports anybody listens."""
    return next(job for job in (f"{test}@{number}" for number in itertools.count(os.getpid()))
                if not any(listens(port) for port in ports_of(f"Open MPI {job}")))


def test_two_jobs_without_any_setting_do_not_meet():
    one, other = a_free_job("one"), a_free_job("other")
    mixed = [env for pair in zip(of_job(one, JOB=1), of_job(other, JOB=2)) for env in pair]
    with started(mixed, "c = join(); say(jobs=c.world.allgather(int(os.environ['JOB']))); c.leave()") as processes:
        for at, process in enumerate(processes):
            assert process.wait(timeout=60) == 0, process.stderr
            assert said(process)["jobs"] == [1 + at % 2] * 2


@pytest.mark.parametrize("secrets", [("", ""), ("of one", "of the other"), ("of one", ""), ("", "of the other")],
                         ids=["none", "two", "the first's", "the second's"])
def test_another_jobs_scheduler_on_the_same_port_is_passed_by(secrets):
    """Two jobs whose first ports are the same: the second to come takes its next, and nobody meets a stranger."""
    firsts, seconds = ({"MUSTER_JOB_SECRET": secret} for secret in secrets)
    met = {("", ""): "belongs to another job than this scheduler", ("of one", "of the other"): "the job's secret is another",
           ("of one", ""): "this job has a secret", ("", "of the other"): "this scheduler has none"}[secrets]
    first = a_free_job("first")
    port = ports_of(f"Open MPI {first}")[0]
    second = next(job for job in map(str, itertools.count()) if ports_of(f"Open MPI {job}")[0] == port)
    with started(of_job(first, **firsts)[:1]) as (holder,):
        until(lambda: listens(port), 30, f"{holder.name} listens")
        # Its second rank comes first, and finds the other job's scheduler, whose second rank is still awaited.
        zero, late = of_job(second, MUSTER_LOG="info", **seconds)
        with started([late]) as (late,):
            until(lambda: met in late.stderr, 60, "it has been there")
            with started([zero]) as (zero,):
                # Before the first job ends: its port would be free then.
                listening = lambda: re.search(r"the scheduler listens at 127\.0\.0\.1:(\d+), for the job", zero.stderr)
                until(listening, 60, "the second job's scheduler listens")
                assert int(listening()[1]) in ports_of(f"Open MPI {second}")[1:]
                all_met(late, zero)
                with started(of_job(first, **firsts)[1:]) as (partner,):
                    all_met(holder, partner)


def all_met(*processes):
    """Both ranks of a job have ended well, and have met each other."""
    for process in processes:
        assert process.wait(timeout=60) == 0, process.stderr
        assert said(process)["everyone"] == [0, 1]


@pytest.mark.parametrize("says", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n", b""], ids=["nothing", "something else", "goodbye"])
def test_a_strangers_server_on_the_jobs_first_port_is_passed_by(says):
    job = a_free_job("strange")
    port, *others = ports_of(f"Open MPI {job}")
    lines = """
        c = join()
        if c.rank == 0:
            asked = subprocess.run([os.environ["STATUS"], "status", "--sched_port", os.environ["NEXT"], "--format", "json"],
                                   capture_output=True, text=True, timeout=30)
            say(status=asked.returncode)
        say(everyone=c.world.allgather(c.rank))
        c.leave()
    """
    with a_server(port, says) as met, started(of_job(job, STATUS=MUSTER, NEXT=others[0]), "import subprocess\n" + textwrap.dedent(lines)) as processes:
        for process in processes:
            assert process.wait(timeout=60) == 0, process.stderr
            assert said(process)["everyone"] == [0, 1]
        assert met, "rank 1 tried the first port"
        assert said(processes[0])["status"] == 0, "the scheduler is at the second, and tells whoever asks there"


@contextlib.contextmanager
def a_server(port, says):
    """Takes connections, and says this to each before it closes it; None: says nothing and keeps it. Whom it met."""
    met = []

    def serve():
        with contextlib.suppress(OSError):  # it is closed at the end
            while True:
                connection, address = server.accept()
                met.append(connection if says is None else address)
                if says is not None:
                    with contextlib.suppress(OSError), connection:
                        connection.sendall(says)

    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        server.listen()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield met
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in met if says is None else ():
                connection.close()


def test_a_job_that_is_started_again_by_another_launcher_goes_on(tmp_path):
    """The launcher knows it by another number, and its ports are others; its journal and its nodes' tokens are what they were."""
    recovery = {"MS_ENABLE_RECOVERY": "1", "MS_RECOVERY_PATH": tmp_path, "MS_NODE_TIMEOUT": "2"}
    with started(of_job(a_free_job("before"), **recovery), "c = join(); c.store_add('lives', 1); say(epoch=c.epoch); time.sleep(600)") as lives:
        for process in lives:
            process.wait_for('"epoch"', 60)
        for process in lives:
            process.signal(signal.SIGKILL)
    lines = "c = join(); say(epoch=c.epoch, lives=c.store_add('lives', 1)); c.world.barrier(); c.leave()"
    with started(of_job(a_free_job("after"), **recovery), lines) as lives:
        for process in lives:
            assert process.wait(timeout=90) == 0, process.stderr
        assert [said(process)["epoch"] for process in lives] == [2, 2]
        assert sorted(said(process)["lives"] for process in lives) == [3, 4]


def test_where_all_ports_are_taken_the_setting_is_named():
    job = a_free_job("full")
    with contextlib.ExitStack() as stack:
        for port in ports_of(f"Open MPI {job}"):
            stack.enter_context(a_server(port, None))
        with started(of_job(job)[:1]) as (zero,):
            failed_at_once(zero, "BIND", "MUSTER_SCHED_PORT is not set", "none of the ports of this job", "in use")


def test_a_rank_whose_scheduler_does_not_come_says_where_it_looked():
    job = a_free_job("lonely")
    with started(of_job(job, MUSTER_CLUSTER_TIMEOUT="1")[1:]) as (one,):
        assert one.wait(timeout=30) == 1
        sentence = said(one)["sentence"]
        assert said(one)["error"] == "UNREACHABLE"
        for part in ["MUSTER_CLUSTER_TIMEOUT is 1", "MUSTER_SCHED_PORT", *(f"127.0.0.1:{port}" for port in ports_of(f"Open MPI {job}"))]:
            assert part in sentence, f"{part!r} is not in {sentence!r}"


def test_a_process_of_a_launcher_that_is_not_known_is_told_that_it_is_alone():
    with started([{"PMIX_RANK": "1"}]) as (process,):
        assert process.wait(timeout=30) == 0
        assert said(process)["size"] == 1
        line, = process.stderr.splitlines()
        assert "PMIX_RANK is set, but this version does not take a rank from a launcher that speaks PMIx" in line


# What tells a pod, or a task of Slurm's, its place: of two.
PLACES = {
    "Slurm": lambda rank: {"SLURM_PROCID": rank, "SLURM_STEP_NUM_TASKS": 2, "SLURM_STEP_ID": 0, "SLURM_JOB_ID": os.getpid(),
                           "SLURM_STEP_NODELIST": "127.0.0.1"},
    "Kubeflow Trainer": lambda rank: {"PET_NODE_RANK": rank, "PET_NNODES": 2, "PET_MASTER_ADDR": "127.0.0.1"},
    "LeaderWorkerSet": lambda rank: {"LWS_WORKER_INDEX": rank, "LWS_GROUP_SIZE": 2, "LWS_LEADER_ADDRESS": "127.0.0.1"},
    "Volcano": lambda rank: {"VC_TASK_INDEX": rank, "VC_WORKER_NUM": 2, "VC_WORKER_HOSTS": "127.0.0.1,127.0.0.2"},
    "Kubernetes": lambda rank: {"JOB_COMPLETION_INDEX": rank, "MUSTER_WORKER_NUM": 2, "MUSTER_SCHED_HOST": "127.0.0.1"},
}


@pytest.mark.parametrize("name", PLACES)
def test_other_launchers_tell_a_process_its_rank(name):
    with reserved_port() as port:
        ours = {} if name == "Slurm" else {"MUSTER_SCHED_PORT": port}
        with started([{**PLACES[name](rank), **ours} for rank in range(2)]) as processes:
            all_succeed(processes)


def test_a_hostfile_that_mpirun_was_given_says_where_rank_0_is(tmp_path):
    """Kubeflow's MPIJob names it in a variable, which its ranks inherit."""
    hosts = tmp_path / "hostfile"
    hosts.write_text("# of the job\n127.0.0.1 slots=1\n127.0.0.2 slots=1\n")
    spread = [{**place(OPEN_MPI, rank, 2), "OMPI_COMM_WORLD_LOCAL_RANK": 0, "OMPI_COMM_WORLD_LOCAL_SIZE": 1} for rank in range(2)]
    with reserved_port() as port:
        ours = {"OMPI_MCA_orte_default_hostfile": hosts, "MUSTER_SCHED_PORT": port}
        with started([{**env, **ours} for env in spread]) as processes:
            all_succeed(processes)
    nowhere = {**spread[1], "HYDRA_HOST_FILE": tmp_path / "none"}
    alone_fails_at_once(nowhere, "CONFIG", "Open MPI", "HYDRA_HOST_FILE names", "none", "can't be read")
