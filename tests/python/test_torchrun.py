"""Under a real torchrun: two runs side by side, and one over two hosts. Most of the programs know nothing of torch."""

import contextlib
import json
import os
import re

import pytest

import torches
from cluster import TREE, Process, complaints
from named_hosts import NamedHosts
from nodes import node
from pages import Page
from test_train_digits import trained_well

HERE, OVER_TWO_HOSTS = Page("docs", "launching.md").section("torchrun", "sh")
SECONDS = torches.TIMEOUT_S
TALK = """
    import socket
    c = join()
    jobs = c.world.allgather(int(os.environ["JOB"]))
    say(host=socket.gethostname(), local=c.local_rank, everyone=c.world.allgather(c.rank), job=jobs)
    c.leave()
"""


def torchrun(*options):
    """The module, and not its script: that names the interpreter by the path where it was installed."""
    return [torches.python(torches.fetch_torch.VERSIONS[-1]), "-m", "torch.distributed.run", *options, *node(TALK)]


def told(process):
    """What the ranks said; torchrun does not keep their lines apart."""
    assert process.wait(SECONDS) == 0, process.describe()
    assert complaints(process.stderr) == [], process.stderr
    return [json.loads(words) for words in re.findall(r"\{[^{}]*\"job\"[^{}]*\}", process.stdout)]


def test_two_runs_side_by_side_do_not_mix():
    command = torchrun("--standalone", "--nproc_per_node=2")
    with contextlib.ExitStack() as stack:
        runs = [stack.enter_context(Process(command, {"JOB": job, "OMP_NUM_THREADS": 1}, f"run {job}")) for job in (1, 2)]
        for job, run in enumerate(runs, start=1):
            assert [(words["everyone"], words["job"]) for words in told(run)] == [([0, 1], [job, job])] * 2


@pytest.mark.launchers
def test_one_run_over_two_hosts(tmp_path):
    with NamedHosts(tmp_path) as hosts, contextlib.ExitStack() as stack:
        agents = []
        for at in range(2):
            place = ["--nnodes=2", "--nproc_per_node=2", f"--node_rank={at}"]
            command = torchrun(*place, "--master_addr=host1", "--master_port=29500")
            env = {"JOB": 1, "OMP_NUM_THREADS": 1}
            agents.append(stack.enter_context(Process(hosts.command(at, command), env, f"agent {at}")))
        for name, agent in zip(("host1", "host2"), agents):
            words = told(agent)
            assert [(each["host"], each["everyone"]) for each in words] == [(name, [0, 1, 2, 3])] * 2
            assert sorted(each["local"] for each in words) == [0, 1]


# The ranks of one agent write to one pipe: each says its line at once.
TRAINS = """
import os, torch, torch.distributed as dist
dist.init_process_group("muster")
dist.all_reduce(x := torch.ones(1))
os.write(1, f"sum {x.item():g}\\n".encode())
dist.destroy_process_group()
"""
REMARK = re.compile(r'"host1", which leads this host to 127\.0\.1\.1, and ranks .*: the scheduler binds (\S+); if they ')


@pytest.mark.launchers
@pytest.mark.parametrize("binds", [None, "*"])
def test_ranks_of_two_hosts_find_a_host_whose_own_name_leads_to_its_loopback(tmp_path, binds):
    (tmp_path / "program.py").write_text(TRAINS)
    env = {**torches.fetch_torch.installed(tmp_path), "MUSTER_SCHED_BIND": binds}
    with NamedHosts(tmp_path) as hosts, hosts.own_name("127.0.1.1"), contextlib.ExitStack() as stack:
        agents = []
        for at in range(2):
            place = ["--nnodes=2", "--nproc_per_node=2", f"--node_rank={at}", "--master_addr=host1", "--master_port=29500"]
            command = [*torchrun(*place)[:-2], tmp_path / "program.py"]
            agents.append(stack.enter_context(Process(hosts.command(at, command, contained=True), env, f"agent {at}")))
        for agent in agents:
            assert agent.wait(SECONDS) == 0, agent.describe()
            assert agent.stdout.splitlines() == ["sum 4"] * 2
        told_of = [REMARK.findall(agent.stderr) for agent in agents]
        assert told_of == [[] if binds else hosts.addresses[:1], []]


# By torch's store in a file, which names no host.
MEETS = """
import sys, torch, torch.distributed as dist
rank, file = int(sys.argv[1]), sys.argv[2]
try:
    dist.init_process_group("muster", init_method=f"file://{file}", rank=rank, world_size=2)
    dist.all_reduce(x := torch.ones(1))
    print(f"sum {x.item():g}", flush=True)
    dist.destroy_process_group()
except Exception as error:
    print(f"{type(error).__name__}: {error}", flush=True)
"""


@pytest.mark.launchers
@pytest.mark.parametrize("named", [False, True])
def test_a_store_in_a_file_serves_one_host_and_several_whose_scheduler_has_an_address(tmp_path, named):
    (tmp_path / "program.py").write_text(MEETS)
    env = {**torches.fetch_torch.installed(tmp_path), "OMP_NUM_THREADS": 1}
    python = torches.python(torches.fetch_torch.VERSIONS[-1])
    with NamedHosts(tmp_path) as hosts, contextlib.ExitStack() as stack:
        if named:
            env.update(MUSTER_SCHED_HOST=hosts.addresses[0], MUSTER_SCHED_PORT=29600)
        ranks = []
        for at in range(2):
            command = hosts.command(at, [python, tmp_path / "program.py", str(at), tmp_path / "store"])
            ranks.append(stack.enter_context(Process(command, env, f"rank {at}")))
        assert ranks[1].wait(SECONDS) == 0, ranks[1].describe()
        if named:
            assert ranks[0].wait(SECONDS) == 0, ranks[0].describe()
            assert [rank.stdout for rank in ranks] == ["sum 2\n"] * 2, [rank.describe() for rank in ranks]
        else:
            assert re.search(r"rank 0 listens at 127\.0\.0\.1:\d+, which .* set MUSTER_SCHED_HOST", ranks[1].stdout), ranks[1].describe()


@pytest.mark.launchers
def test_the_page_trains_on_one_host_and_on_two(tmp_path):
    env = {"PATH": f"{torches.on_path(tmp_path / 'bin')}:{os.environ['PATH']}", "OMP_NUM_THREADS": 1}
    with NamedHosts(tmp_path) as hosts, contextlib.ExitStack() as stack:
        def pasted(host, text):
            shell = hosts.command(host, ["bash", "-euo", "pipefail", "-c", text])
            return stack.enter_context(Process(shell, env, "shell", cwd=TREE))

        alone = pasted(0, HERE)
        assert alone.wait(SECONDS) == 0, alone.describe()
        trained_well(alone.stdout, ranks=4)
        agents = [pasted(0, OVER_TWO_HOSTS), pasted(1, OVER_TWO_HOSTS.replace("--node_rank=0", "--node_rank=1"))]
        assert [agent.wait(SECONDS) for agent in agents] == [0, 0], [agent.describe() for agent in agents]
        trained_well("".join(agent.stdout for agent in agents))
