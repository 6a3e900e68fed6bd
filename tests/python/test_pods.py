"""Pods on two hosts, with nothing but what each kind of job tells its pods."""

import contextlib
import os
import re

import pytest

from cluster import MUSTER, TREE, Process
from named_hosts import NAMES, NamedHosts
from nodes import node, said
from pages import Page
from pods import expanded
from test_train_digits import trained_well

pytestmark = pytest.mark.launchers

KUBERNETES = Page("docs", "kubernetes.md")
SECONDS = 60
TALK = """
    import socket
    c = join()
    say(host=socket.gethostname(), everyone=c.world.allgather(c.rank))
    c.leave()
"""
TRAINER = {"PET_NNODES": 2, "PET_MASTER_ADDR": "host1", "PET_MASTER_PORT": 29500}
WORKERS = {"VC_WORKER_NUM": 2, "VC_WORKER_HOSTS": "host1,host2"}
INDEXED = {"MUSTER_WORKER_NUM": 2, "MUSTER_SCHED_HOST": "host1"}
PODS = {
    "Kubeflow Trainer": lambda rank: {"PET_NODE_RANK": rank, **TRAINER},
    "LeaderWorkerSet": lambda rank: {"LWS_WORKER_INDEX": rank, "LWS_GROUP_SIZE": 2, "LWS_LEADER_ADDRESS": "host1"},
    "Volcano": lambda rank: {"VC_TASK_INDEX": rank, **WORKERS},
    "Volcano with two tasks": lambda rank: {
        "VC_TASK_INDEX": rank, **WORKERS, "VC_PS_NUM": 2, "VC_PS_HOSTS": "host3,host4", "HOSTNAME": NAMES[rank]
    },
    "Jobs of a JobSet, with a pod each": lambda rank: {"JOB_COMPLETION_INDEX": 0, "MUSTER_RANK_ID": rank, **INDEXED},
    "an indexed Job": lambda rank: {"JOB_COMPLETION_INDEX": rank, **INDEXED},
    "an indexed Job that knows its name": lambda rank: {"JOB_COMPLETION_INDEX": rank, **INDEXED, "JOB_NAME": "train"},
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with NamedHosts(tmp_path_factory.mktemp("hosts")) as both:
        yield both


@pytest.mark.parametrize("kind", PODS)
def test_a_pods_index_is_its_rank(hosts, kind):
    with contextlib.ExitStack() as stack:
        pods = []
        for at, name in enumerate(NAMES):
            pods.append(stack.enter_context(Process(hosts.command(at, node(TALK)), PODS[kind](at), name)))
        for rank, pod in enumerate(pods):
            assert pod.wait(SECONDS) == 0, pod.describe()
            words = said(pod)
            assert (words["rank"], words["host"], words["local_rank"], words["everyone"]) == (rank, NAMES[rank], 0, [0, 1])
            assert pod.stderr == ""


def test_muster_run_starts_what_kubeflow_trainer_means(hosts, tmp_path):
    """Two nodes of two processes each, by its variables alone."""
    program = [MUSTER, "run", "--join", *node(TALK)]
    with contextlib.ExitStack() as stack:
        launchers = []
        for rank, name in enumerate(NAMES):
            env = {"PET_NODE_RANK": rank, "PET_NPROC_PER_NODE": 2, **TRAINER}
            os.mkdir(tmp_path / name)
            launchers.append(stack.enter_context(Process(hosts.command(rank, program), env, name, cwd=tmp_path / name)))
        for launcher in launchers:
            assert launcher.wait(SECONDS) == 0, launcher.describe()
        for rank in range(4):
            log = (tmp_path / NAMES[rank // 2] / f"worker_{rank}.log").read_text()
            assert f'"rank": {rank}, "size": 4, "local_rank": {rank % 2}, "local_size": 2' in log


# What the page says to give `muster run`, for several workers in each pod.
IN_PODS = {kind: [index, master] for kind, index, master in
           re.findall(r"^\| (an indexed Job|LeaderWorkerSet|Volcano|Kubeflow Trainer) \| (.*?) \| (.*?) \|$", KUBERNETES.text, re.M)}


@pytest.mark.parametrize("kind", ["an indexed Job", "LeaderWorkerSet", "Volcano", "Kubeflow Trainer"])
def test_the_trainer_in_two_pods_of_four_workers(hosts, kind, tmp_path):
    index, master = IN_PODS[kind]
    with contextlib.ExitStack() as stack:
        pods = []
        for at, name in enumerate(NAMES):
            told = {**PODS[kind](at), **({"PET_NPROC_PER_NODE": 4} if kind == "Kubeflow Trainer" else {"MUSTER_WORKER_NUM": None})}
            words = []
            if "not given" not in index:
                address = master if master.startswith("`$(") else "host1"
                places = ["--worker_num=8", "--local_worker_num=4", f"--node_rank={index}", f"--master_addr={address}", "--master_port=8118"]
                words = [expanded(word.replace("`", ""), {key: str(value) for key, value in told.items()}) for word in places]
            os.mkdir(tmp_path / name)
            command = hosts.command(at, [MUSTER, "run", *words, "--join", TREE / "target" / "examples" / "train_digits"])
            pods.append(stack.enter_context(Process(command, {**told, "MUSTER_SCHED_BIND": "*"}, name, cwd=tmp_path / name)))
        for pod in pods:
            assert pod.wait(SECONDS) == 0, pod.describe()
        trained_well("".join(pod.stdout for pod in pods), ranks=8)


def test_muster_run_says_which_of_those_variables_it_cannot_use(hosts):
    wrong = {"PET_NNODES": 2, "PET_NODE_RANK": 0, "PET_NPROC_PER_NODE": "auto", "PET_MASTER_ADDR": "host1"}
    ended = hosts.run(0, [MUSTER, "run", "--join", "true"], wrong)
    assert ended.returncode == 2
    assert 'PET_NPROC_PER_NODE is "auto": expected a whole number from 1 on' in ended.stderr
