"""Under a real torchrun, with programs that know nothing of torch: two runs side by side, and one over two hosts."""

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
