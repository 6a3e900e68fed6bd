"""The lines of docs/kubernetes.md for the pods of LeaderWorkerSet, Volcano and Kubeflow Trainer, on two hosts as they stand there."""

import contextlib
import os

import pytest
import yaml

from cluster import MUSTER, TREE, Process
from named_hosts import NAMES, NamedHosts
from pages import Page
from pods import expanded
from test_pods import PODS, SECONDS
from test_train_digits import trained_well

pytestmark = pytest.mark.launchers

LEADER_WORKER_SET, VOLCANO, TRAINER = Page("docs", "kubernetes.md").section("LeaderWorkerSet, Volcano, Kubeflow Trainer", "yaml")
LINES = {"LeaderWorkerSet": LEADER_WORKER_SET, "Volcano": VOLCANO, "Kubeflow Trainer": TRAINER}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with NamedHosts(tmp_path_factory.mktemp("hosts")) as both:
        yield both


@pytest.mark.parametrize("kind", LINES)
def test_two_pods_of_four_workers_train_by_the_pages_lines(hosts, kind, tmp_path):
    lines = yaml.safe_load(LINES[kind])
    told = {entry["name"]: entry["value"] for entry in lines["env"]}
    told["PATH"] = f"{MUSTER.parent}:{os.environ['PATH']}"
    if kind == "Kubeflow Trainer":
        told["PET_NPROC_PER_NODE"] = 4
    with contextlib.ExitStack() as stack:
        pods = []
        for at, name in enumerate(NAMES):
            # What the image has at another path.
            paths = {"/usr/local/digits/": f"{TREE}/target/examples/", "/tmp/logs": f"{tmp_path}/{name}"}
            own = {**PODS[kind](at), **told}
            words = [expanded(word, {key: str(value) for key, value in own.items()}) for word in lines["command"]]
            for path, here in paths.items():
                words = [word.replace(path, here) for word in words]
            pods.append(stack.enter_context(Process(hosts.command(at, words), own, name, cwd=tmp_path)))
        for pod in pods:
            assert pod.wait(SECONDS) == 0, pod.describe()
        trained_well("".join(pod.stdout for pod in pods), ranks=8)
