"""`mpirun` over two hosts, each a network of its own with a name; in place of ssh a program enters them."""

import contextlib
import json
import os
import re
import shutil

import pytest
import yaml

import mpi
from cluster import EXAMPLES, TREE, Process, complaints
from named_hosts import NamedHosts
from nodes import node
from pages import Page
from test_train_digits import trained_well

pytestmark = [pytest.mark.launchers, pytest.mark.xdist_group("mpi")]  # Open MPI's sessions are the user's

SPREAD = {
    "Open MPI": ["-H", "host1:2,host2:2"],
    "Open MPI 5": ["-H", "host1:2,host2:2"],
    "MPICH": ["-hosts", "host1,host2", "-ppn", "2"],
    "Intel MPI": ["-hosts", "host1,host2", "-ppn", "2"],
}
# How Kubeflow's MPIJob tells each its hosts; and lines of such a file.
FILES = {
    "Open MPI": ("OMPI_MCA_orte_default_hostfile", "{} slots={}\n"),
    "Open MPI 5": ("PRTE_MCA_prte_default_hostfile", "{} slots={}\n"),
    "MPICH": ("HYDRA_HOST_FILE", "{}:{}\n"),
    "Intel MPI": ("I_MPI_HYDRA_HOST_FILE", "{}:{}\n"),
}
MPI_JOB, = Page("docs", "kubernetes.md").section("Kubeflow's MPIJob", "yaml")
HERE, OPEN_MPI, HYDRA = Page("docs", "launching.md").section("mpirun", "sh")
# What takes the place of ssh, and leave to start more ranks than there are processors: as settings of each launcher.
SETTINGS = {
    "Open MPI": {"OMPI_MCA_plm_rsh_agent": "{ssh}", "OMPI_MCA_rmaps_base_oversubscribe": 1},
    "Open MPI 5": {"PRTE_MCA_plm_ssh_agent": "{ssh}", "PRTE_MCA_hwloc_default_binding_policy": "none"},
    "MPICH": {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": "{ssh}"},
    "Intel MPI": {"I_MPI_HYDRA_BOOTSTRAP": "ssh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": "{ssh}"},
}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": 1, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": 1}
TALK = """
    import socket
    c = join()
    say(host=socket.gethostname(), job=c.world.allgather(int(os.environ["JOB"])))
    c.leave()
"""
PLACES = {0: ("host1", 0), 1: ("host1", 1), 2: ("host2", 0), 3: ("host2", 1)}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with NamedHosts(tmp_path_factory.mktemp("hosts")) as both:
        yield both


@pytest.fixture(params=mpi.COMMANDS)
def launcher(request):
    return mpi.demand(request.param)


def node_command():
    interpreter = TREE / "target" / "venv" / "bin" / "python"
    return [interpreter, *node(TALK)]


def job(hosts, launcher, options, env, number=1, ranks=4, program=node_command()):
    """A job that mpirun, on the first host, starts on both."""
    env = {"JOB": number, **env}
    handed_on = [word for name in env for word in ("-x", name)] if launcher.startswith("Open MPI") else []
    command, needs = mpi.mpirun(launcher, ranks, program, [*mpi.AGENTS[launcher](hosts.ssh), *options, *handed_on])
    return Process(hosts.command(0, command), {**needs, **env}, f"{launcher}'s job {number}", cwd=TREE)


def succeeds(process, number=1, remarks=()):
    """Ranks, local ranks and hosts are those that mpirun has given, and no rank is of another job. Each remark is made once."""
    assert process.wait(mpi.JOB_SECONDS) == 0, process.describe()
    found = [line for line in complaints(process.stderr) if mpi.PASSED_ON not in line]
    assert len(found) == len(remarks) and all(words in line for words, line in zip(remarks, found)), process.stderr
    lines = [json.loads(line) for line in re.findall(r"\{[^{}]*\}", process.stdout)]
    joined = {words["rank"]: words for words in lines if "rank" in words}
    assert {rank: words["local_rank"] for rank, words in joined.items()} == {rank: local for rank, (_, local) in PLACES.items()}
    assert all((words["size"], words["local_size"]) == (4, 2) for words in joined.values())
    told = [words for words in lines if "job" in words]
    assert sorted(words["host"] for words in told) == ["host1", "host1", "host2", "host2"]
    assert all(words["job"] == [number] * 4 for words in told)


def test_ranks_of_two_hosts_meet_where_master_addr_says(hosts, launcher):
    """Two jobs at once, at the same address: each has ports of its own."""
    env = {"MASTER_ADDR": hosts.addresses[0]}
    with contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(job(hosts, launcher, SPREAD[launcher], env, number)) for number in (1, 2)]
        for number, process in enumerate(jobs, start=1):
            succeeds(process, number)


def test_the_first_hosts_name_will_do_though_it_leads_that_host_to_its_loopback(hosts, launcher):
    with hosts.own_name("127.0.1.1"), job(hosts, launcher, SPREAD[launcher], {"MASTER_ADDR": "host1"}) as process:
        succeeds(process, remarks=[f"the scheduler binds {hosts.addresses[0]};"])


def hostfile(folder, launcher, slots=2):
    """Both hosts in a file as this launcher has them, with so many ranks each, and the variable that names it."""
    variable, line = FILES[launcher]
    file = folder / "hostfile"
    file.write_text("".join(line.format(name, slots) for name in ("host1", "host2")))
    return variable, file


@pytest.mark.parametrize("launcher", FILES)
def test_the_hostfile_of_an_mpijob_says_where_rank_0_is(hosts, launcher, tmp_path):
    mpi.demand(launcher)
    variable, file = hostfile(tmp_path, launcher)
    with job(hosts, launcher, [], {variable: file}) as process:
        succeeds(process)


@pytest.mark.parametrize("launcher", FILES)
def test_two_hosts_of_an_mpijob_train(hosts, launcher, tmp_path):
    mpi.demand(launcher)
    variable, file = hostfile(tmp_path, launcher, slots=4)
    unbound = mpi.UNBOUND.get(launcher, [])
    with job(hosts, launcher, unbound, {variable: file}, ranks=8, program=[EXAMPLES / "train_digits"]) as process:
        assert process.wait(mpi.JOB_SECONDS) == 0, process.describe()
        trained_well(process.stdout)


def enclosed(folder, launcher, hosts):
    """A program in place of mpirun, for a launcher whose file of hosts is in its own mounts only; and a start of ranks without these."""
    ssh, mpirun = folder / "ssh", folder / "mpirun"
    ssh.write_text(f"#!/bin/sh\nexec unshare --mount sh -c 'umount /mnt && exec {hosts.ssh} \"$@\"' ssh \"$@\"\n")
    words = [shutil.which(mpi.COMMANDS[launcher][0]), *mpi.COMMANDS[launcher][1:], *mpi.AGENTS[launcher](str(ssh))]
    mpirun.write_text(f"#!/bin/sh\nexec {' '.join(str(word) for word in words)} \"$@\"\n")
    for program in (ssh, mpirun):
        program.chmod(0o755)
    return "mount -t tmpfs hosts /mnt && cp \"$0\" /mnt/hostfile && exec \"$@\""


@pytest.mark.parametrize("launcher", FILES)
def test_in_an_mpijob_the_launcher_reads_rank_0s_host(hosts, launcher, tmp_path):
    """As on the page of Kubernetes, only the launcher has the file. Without its word a rank elsewhere says what is missing."""
    mpi.demand(launcher)
    variable, file = hostfile(tmp_path, launcher)
    inside = enclosed(tmp_path, launcher, hosts)
    words = [*yaml.safe_load(MPI_JOB)["command"][:-1], *node_command()]
    words = [word.replace("/etc/mpi/", "/mnt/") if isinstance(word, str) else word for word in words]
    if not launcher.startswith("Open MPI"):
        del words[words.index("-x"):words.index("MASTER_ADDR") + 1]
    env = {**mpi.NEEDS.get(launcher, {}), "JOB": 1, variable: "/mnt/hostfile", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words[4:4] = ["-x", "JOB"] if launcher.startswith("Open MPI") else []
    with Process(hosts.command(0, ["sh", "-ec", inside, file, *words]), env, f"{launcher} in an MPIJob", cwd=TREE) as process:
        succeeds(process)
    if not launcher.startswith("Open MPI"):
        return  # Hydra lets the ranks wait that are beside the launcher, and have the file, when the others have ended
    silent = [word.replace("export MASTER_ADDR=", ": ") if isinstance(word, str) else word for word in words]
    with Process(hosts.command(0, ["sh", "-ec", inside, file, *silent]), env, f"{launcher} without it", cwd=TREE) as process:
        assert process.wait(mpi.JOB_SECONDS) not in (0, None)
        assert "nothing says where the scheduler is: set MUSTER_SCHED_HOST (or MASTER_ADDR)" in process.stdout, process.describe()


def test_ranks_of_two_hosts_that_know_no_address_say_at_once_what_to_set(hosts, launcher):
    with job(hosts, launcher, SPREAD[launcher], {}) as process:
        assert process.wait(mpi.JOB_SECONDS) not in (0, None)
        assert "as one of 4, but nothing says where the scheduler is: set MUSTER_SCHED_HOST" in process.stdout


def test_the_page_trains_on_one_host_and_on_two(hosts, launcher, tmp_path):
    """Its commands name `mpirun`: here that is this launcher's."""
    program = shutil.which(mpi.COMMANDS[launcher][0])
    (tmp_path / "mpirun").write_text(f"#!/bin/sh\nexec {program} \"$@\"\n")
    (tmp_path / "mpirun").chmod(0o755)
    settings = {name: str(value).format(ssh=hosts.ssh) for name, value in SETTINGS[launcher].items()}
    env = {**AS_ROOT, **settings, **mpi.NEEDS.get(launcher, {}), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    over_two = OPEN_MPI if launcher.startswith("Open MPI") else HYDRA
    for commands, ranks, more in [(HERE, 4, {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}), (over_two, 8, {})]:
        shell = ["bash", "-euo", "pipefail", "-c", commands]
        with Process(hosts.command(0, shell), {**env, **more}, f"{launcher} on the page", cwd=TREE) as process:
            assert process.wait(mpi.JOB_SECONDS) == 0, process.describe()
            trained_well(process.stdout, ranks)
