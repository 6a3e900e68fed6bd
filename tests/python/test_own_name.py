"""Rank 0's host, which runs the scheduler, takes its own name for its loopback, as Debian has it; the other host knows its address.
The launchers' variables are set by hand: what a real one does there is in test_mpi_hosts.py."""

import contextlib
import re

import pytest

from cluster import Process, complaints
from named_hosts import NamedHosts
from nodes import node, said

pytestmark = [pytest.mark.launchers, pytest.mark.xdist_group("hosts")]

LIMIT = 90
TALK = node("c = join(); say(everyone=c.world.allgather(c.rank)); c.leave()")
REMARK = (
    "{setting} is \"host1\", which leads this host to 127.0.1.1, and ranks of other hosts can't come to its loopback: "
    "the scheduler binds {address}; if they don't find it there, set MUSTER_SCHED_HOST to this host's address"
)


def torchrun(rank, local_size):
    """A port that a network of its own has free."""
    place = {"RANK": rank, "LOCAL_RANK": rank % local_size, "LOCAL_WORLD_SIZE": local_size}
    return {"WORLD_SIZE": 4, "MASTER_ADDR": "host1", "MASTER_PORT": 29500, **place}


def slurm(rank, local_size):
    step = {"SLURM_JOB_ID": 7, "SLURM_STEP_ID": 0, "SLURM_STEP_NUM_TASKS": 4, "SLURM_STEP_NODELIST": "host[1-2]"}
    return {**step, "SLURM_PROCID": rank, "SLURM_LOCALID": rank % local_size}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with NamedHosts(tmp_path_factory.mktemp("hosts")) as both:
        yield both


def scheduler_at(hosts, launcher, own_name, local_size=2, more=None):
    """All four ranks meet. At which addresses the scheduler listened, and of what it has warned."""
    with hosts.own_name(*own_name), contextlib.ExitStack() as stack:
        ranks = []
        for rank in range(4):
            env = {**launcher(rank, local_size), "MS_CLUSTER_TIMEOUT": LIMIT // 2, "MUSTER_LOG": "info", **(more or {})}
            ranks.append(stack.enter_context(Process(hosts.command(rank // local_size, TALK), env, f"rank {rank}")))
        for process in ranks:
            assert process.wait(LIMIT) == 0, process.describe()
            assert said(process)["everyone"] == [0, 1, 2, 3]
        text = ranks[0].stderr
        assert not any("loopback" in process.stderr for process in ranks[1:]), "one line is enough"
    place, = re.findall(r"the scheduler listens at (\S+?):\d+( and |,|$)", text, re.M)
    return place[0], [line for line in complaints(text) if "loopback" in line]


@pytest.mark.parametrize("launcher, setting", [(torchrun, "MASTER_ADDR"), (slurm, "the first host of SLURM_STEP_NODELIST")])
def test_ranks_of_two_hosts_meet_at_the_hosts_own_address(hosts, launcher, setting):
    place, (line,) = scheduler_at(hosts, launcher, ["127.0.1.1"])
    assert place == hosts.addresses[0]
    assert REMARK.format(setting=setting, address=place) in line


def test_a_name_that_leads_to_the_loopback_and_elsewhere_leads_elsewhere(hosts):
    place, remarks = scheduler_at(hosts, torchrun, ["127.0.1.1", hosts.addresses[0]])
    assert (place, remarks) == (hosts.addresses[0], [])


def test_what_is_to_be_bound_is_bound(hosts):
    """Every address: the ranks beside the scheduler come by the one that others use, too."""
    place, remarks = scheduler_at(hosts, torchrun, ["127.0.1.1"], more={"MUSTER_SCHED_BIND": "*"})
    assert (place, remarks) == ("0.0.0.0", [])


def test_ranks_of_one_host_meet_on_its_loopback(hosts):
    place, remarks = scheduler_at(hosts, torchrun, ["127.0.1.1"], local_size=4)
    assert (place, remarks) == ("127.0.1.1", [])
