"""Programs that torchrun or Open MPI starts find each other by those launchers' variables, set here by hand."""

import contextlib
import socket

import pytest

from cluster import Cluster, Process, reserved_port
from launch import until
from nodes import alone_fails_at_once, failed_at_once, node, said

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
