"""`mpirun` over two hosts, each a network of its own with a name; in place of ssh a program enters them."""

import contextlib
import json
import re

import pytest

import mpi
from cluster import TREE, Process, complaints
from named_hosts import NamedHosts
from nodes import node

pytestmark = [pytest.mark.launchers, pytest.mark.xdist_group("mpi")]  # Open MPI's sessions are the user's

SPREAD = {
    "Open MPI": ["-H", "n1:2,n2:2"],
    "Open MPI 5": ["-H", "n1:2,n2:2"],
    "MPICH": ["-hosts", "n1,n2", "-ppn", "2"],
    "Intel MPI": ["-hosts", "n1,n2", "-ppn", "2"],
}
# How Kubeflow's MPIJob tells each its hosts; and lines of such a file.
FILES = {
    "Open MPI": ("OMPI_MCA_orte_default_hostfile", "{} slots=2\n"),
    "Open MPI 5": ("PRTE_MCA_prte_default_hostfile", "{} slots=2\n"),
    "MPICH": ("HYDRA_HOST_FILE", "{}:2\n"),
    "Intel MPI": ("I_MPI_HYDRA_HOST_FILE", "{}:2\n"),
}
TALK = """
    import socket
    c = join()
    say(host=socket.gethostname(), job=c.world.allgather(int(os.environ["JOB"])))
    c.leave()
"""
PLACES = {0: ("n1", 0), 1: ("n1", 1), 2: ("n2", 0), 3: ("n2", 1)}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with NamedHosts(tmp_path_factory.mktemp("hosts")) as both:
        yield both


@pytest.fixture(params=mpi.COMMANDS)
def launcher(request):
    return mpi.demand(request.param)


def job(hosts, launcher, options, env, number=1):
    """A job of four ranks that mpirun, on the first host, starts on both."""
    env = {"JOB": number, **env}
    handed_on = [word for name in env for word in ("-x", name)] if launcher.startswith("Open MPI") else []
    command, needs = mpi.mpirun(launcher, 4, node_command(), [*mpi.AGENTS[launcher](hosts.ssh), *options, *handed_on])
    return Process(hosts.command(0, command), {**needs, **env}, f"{launcher}'s job {number}", cwd=TREE)


def node_command():
    interpreter = TREE / "target" / "venv" / "bin" / "python"
    return [interpreter, *node(TALK)]


def succeeds(process, number=1):
    """Ranks, local ranks and hosts are those that mpirun has given, and no rank is of another job."""
    assert process.wait(mpi.JOB_SECONDS) == 0, process.describe()
    assert [line for line in complaints(process.stderr) if mpi.PASSED_ON not in line] == [], process.stderr
    lines = [json.loads(line) for line in re.findall(r"\{[^{}]*\}", process.stdout)]
    joined = {words["rank"]: words for words in lines if "rank" in words}
    assert {rank: words["local_rank"] for rank, words in joined.items()} == {rank: local for rank, (_, local) in PLACES.items()}
    assert all((words["size"], words["local_size"]) == (4, 2) for words in joined.values())
    told = [words for words in lines if "job" in words]
    assert sorted(words["host"] for words in told) == ["n1", "n1", "n2", "n2"]
    assert all(words["job"] == [number] * 4 for words in told)


def test_ranks_of_two_hosts_meet_where_master_addr_says(hosts, launcher):
    """Two jobs at once, at the same address: each has ports of its own."""
    env = {"MASTER_ADDR": hosts.addresses[0]}
    with contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(job(hosts, launcher, SPREAD[launcher], env, number)) for number in (1, 2)]
        for number, process in enumerate(jobs, start=1):
            succeeds(process, number)


@pytest.mark.parametrize("launcher", FILES)
def test_the_hostfile_of_an_mpijob_says_where_rank_0_is(hosts, launcher, tmp_path):
    mpi.demand(launcher)
    variable, line = FILES[launcher]
    file = tmp_path / "hostfile"
    file.write_text("".join(line.format(name) for name in ("n1", "n2")))
    with job(hosts, launcher, [], {variable: file}) as process:
        succeeds(process)


def test_ranks_of_two_hosts_that_know_no_address_say_at_once_what_to_set(hosts, launcher):
    with job(hosts, launcher, SPREAD[launcher], {}) as process:
        assert process.wait(mpi.JOB_SECONDS) not in (0, None)
        assert "started this process as one of 4, but nothing says where the scheduler is: set MUSTER_SCHED_HOST" in process.stdout
