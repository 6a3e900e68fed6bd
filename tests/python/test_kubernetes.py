"""The manifests of deploy/kubernetes: right by their schemas, and run as pods are run. And the image's recipe."""

import copy
import itertools
import json
import pathlib
import re
import shlex
import subprocess

import jsonschema
import kubernetes_validate
import pytest
import yaml

from cluster import MUSTER, TREE, clean_environment
from launch import until
from pages import Page
from pods import LIMIT, MANIFESTS, Namespace, documents, jobs_of
from recipe import commands, copied
from test_train_digits import REPORT_LINE

PAGE = Page("docs", "kubernetes.md")
COMMANDS, (SHOWN,) = PAGE.commands, PAGE.outputs
SEVERAL_JOBS, = PAGE.section("Several Jobs in a JobSet", "yaml")
LAUNCHING = Page("docs", "launching.md")
# What that page and this one have both.
IN_SHORT = [(LAUNCHING.section("Kubernetes", "sh"), COMMANDS[:3]),
            (LAUNCHING.section("JobSet", "sh"), PAGE.section("Several workers in a pod", "sh")),
            (LAUNCHING.section("MPIJob", "yaml"), PAGE.section("Kubeflow's MPIJob", "yaml"))]
LINES_IN_SHORT = [block for title in ("LeaderWorkerSet", "Volcano", "Kubeflow Trainer") for block in LAUNCHING.section(title, "yaml")]
# The oldest that docs/kubernetes.md names, and the newest that is known here.
VERSIONS = ["1.29", kubernetes_validate.latest_version()]
JOB_SET = json.loads((pathlib.Path(__file__).parent / "jobset.schema.json").read_text())
NAMES = sorted(path.name for path in MANIFESTS.glob("*.yaml"))


def validate(document, version):
    """Checks a manifest as a server does that refuses unknown fields; a JobSet's templates must fit the schema of a Job."""
    if document["kind"] != "JobSet":
        return kubernetes_validate.validate(document, version, strict=True)
    jsonschema.Draft202012Validator(JOB_SET).validate(document)
    for replicated in document["spec"]["replicatedJobs"]:
        job = {"apiVersion": "batch/v1", "kind": "Job", **replicated["template"]}
        kubernetes_validate.validate(job, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_is_what_its_kinds_allow(name, version):
    for document in documents(name):
        validate(document, version)


def every_key(value, path=()):
    """The paths of all keys of a manifest whose names are a schema's, not the user's."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if path and path[-1] in ("selector", "labels", "limits", "requests"):
                continue
            yield (*path, key)
            yield from every_key(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from every_key(inner, (*path, at))


def test_a_slip_in_any_name_of_a_field_is_found():
    document, = documents("jobset.yaml")  # both schemas hold it
    for *path, key in every_key(document["spec"], ("spec",)):
        broken = copy.deepcopy(document)
        inner = broken
        for step in path:
            inner = inner[step]
        inner[f"{key}s"] = inner.pop(key)
        with pytest.raises((jsonschema.ValidationError, KeyError)):
            validate(broken, VERSIONS[-1])


def every_job():
    """All Jobs of all manifests, each with the manifest's name. None is without one."""
    jobs = [(name, job) for name in NAMES for document in documents(name) for job in jobs_of(document)]
    assert NAMES and {name for name, _ in jobs} == set(NAMES)
    return jobs


def test_all_workers_start_at_once_and_are_as_many_as_they_are_told():
    indexed = [(name, job) for name, job in every_job() if job.is_indexed]
    assert {name for name, _ in indexed} == set(NAMES)
    checked = set()
    for name, job in indexed:
        assert job.spec["parallelism"] == job.completions, name
        container, = job.spec["template"]["spec"]["containers"]
        told = {entry["name"]: entry.get("value") for entry in container["env"]}
        count = told.get("MUSTER_WORKER_NUM") or told.get("MS_WORKER_NUM")
        if count:
            assert int(count) == job.completions, name
            checked.add(name)
    assert checked, indexed


def test_pods_have_no_more_rights_than_the_restricted_standard_gives():
    for _, job in every_job():
        template = job.spec["template"]["spec"]
        container, = template["containers"]
        own, every = container["securityContext"], template["securityContext"]
        assert own == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        # They ask Kubernetes nothing, so they need no token for it.
        assert template["automountServiceAccountToken"] is False
        assert every["runAsNonRoot"] and every["runAsUser"] > 0 and every["seccompProfile"] == {"type": "RuntimeDefault"}
        kinds = {kind for volume in template.get("volumes", []) for kind in volume if kind != "name"}
        assert kinds <= {"persistentVolumeClaim", "secret", "emptyDir"} and not any(key.startswith("host") for key in template)


def test_no_other_scheduler_comes_after_one_that_ended_for_good():
    said = subprocess.run([MUSTER, "scheduler", "--help"], check=True, capture_output=True, text=True, timeout=LIMIT).stdout
    final = [int(code) for code in re.findall(r"(\d+) (?:it broke|a node aborted it);", said)]
    job, = [job for _, job in every_job() if job.name == "digits-scheduler"]
    assert len(final) == 2
    evicted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    over = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": final}}
    assert job.spec["podFailurePolicy"]["rules"] == [evicted, over]  # the first that fits counts
    for name, job in every_job():  # what the schemas do not say
        if "podFailurePolicy" in job.spec:
            assert job.spec["template"]["spec"]["restartPolicy"] == "Never", name


def test_the_manifest_with_tls_is_the_one_without_and_tls():
    service, job = documents("job-tls.yaml")
    template = job["spec"]["template"]["spec"]
    container, = template["containers"]
    del template["volumes"], template["securityContext"]["fsGroup"], container["volumeMounts"]
    container["env"] = [entry for entry in container["env"] if entry["name"] not in ("MUSTER_ENABLE_SSL", "MUSTER_CONFIG_FILE_PATH")]
    assert [service, job] == documents("job.yaml")


# The page

# What stands in for docker and kubectl: each call is a line, and what is applied is a file.
STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >> calls
case "$*" in *"-f -"*) cat > applied-$(ls | grep -c ^applied-) ;; esac
"""


@pytest.fixture(scope="module")
def pasted(tmp_path_factory):
    """The folder in which all commands of the page have been run, one after the other, with another registry."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "deploy").symlink_to(TREE / "deploy")
    (folder / "bin").mkdir()
    for name in ("docker", "kubectl"):
        (folder / "bin" / name).write_text(STAND_IN)
        (folder / "bin" / name).chmod(0o755)
    lines = "\n".join(COMMANDS).replace("REGISTRY=registry.example", "REGISTRY=registry.test:5000/own")
    path = f"{folder / 'bin'}:{MUSTER.parent}:/usr/bin:/bin"
    subprocess.run(["bash", "-euo", "pipefail", "-c", lines], cwd=folder, env=clean_environment({"PATH": path}), check=True,
                   capture_output=True, timeout=LIMIT)
    return folder


def test_the_pages_commands_apply_every_manifest_with_the_readers_image(pasted):
    applied = [list(yaml.safe_load_all(file.read_text())) for file in sorted(pasted.glob("applied-*"))]
    own = "registry.test:5000/own/muster-digits:1"
    assert [word for word in (pasted / "calls").read_text().split() if "muster-digits" in word] == [own, own]
    # The page also changes how long the recovery's manifest trains.
    expected = [json.dumps(documents(name)).replace("registry.example/muster-digits:1", own).replace('"200"', '"20000"') for name in NAMES]
    assert sorted(json.dumps(documents) for documents in applied) == sorted(expected)


def test_the_page_of_launching_has_the_same_blocks():
    for there, here in IN_SHORT:
        assert there == here != []


def test_the_page_of_launching_has_the_same_lines_for_containers():
    own = PAGE.section("LeaderWorkerSet, Volcano, Kubeflow Trainer", "yaml")
    assert [yaml.safe_load(lines) for lines in LINES_IN_SHORT] == [yaml.safe_load(lines) for lines in own] != []


def test_the_pages_commands_name_what_there_is(pasted):
    calls = (pasted / "calls").read_text()
    applied = [document for name in NAMES for document in documents(name)]
    made = {f"{document['kind'].lower()}/{document['metadata']['name']}" for document in applied}
    named = set(re.findall(r"\bjob(?:set)?/\w+", calls))
    assert named and named <= made
    jobs = {job.name for document in applied for job in jobs_of(document)}
    assert set(re.findall(r"job-name=([\w-]+)", calls)) <= jobs
    for path in re.findall(r"-f (deploy\S+)", calls):
        assert (TREE / path).exists(), path
    secret, folder = re.search(r"kubectl create secret generic (\S+) --from-file=(\S+)", calls).groups()
    assert f"secretName: {secret}" in (MANIFESTS / "job-tls.yaml").read_text() and (pasted / folder / "tls.json").exists()


# The image


def test_the_image_is_made_of_files_that_are_there():
    """tests/packages/test_image.py shows that these are enough."""
    sources = [source for source, _ in copied()]
    assert len(sources) > 10 and [source for source in sources if not (TREE / source).exists()] == []


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """What the image has beyond Debian: the steps of its recipe, with /image elsewhere; `make library` was run before the tests."""
    place = tmp_path_factory.mktemp("image")
    place.chmod(0o755)
    first, *others = commands()
    assert first == "make library"
    for command in others:
        subprocess.run(["bash", "-euc", command.replace("/image", shlex.quote(str(place)))], cwd=TREE, env=clean_environment(), check=True,
                       capture_output=True, timeout=10 * LIMIT)
    return place


def test_the_image_is_small_and_the_manifests_run_what_it_has(image):
    sizes = {path.name: path.stat().st_size for path in image.rglob("*") if path.is_file() and not path.is_symlink()}
    assert not [name for name in sizes if name.endswith((".a", ".debug"))]
    for name in NAMES:
        for job in (job for document in documents(name) for job in jobs_of(document)):
            container, = job.spec["template"]["spec"]["containers"]
            programs = [word for word in container["command"] if word.startswith("/usr/local/") or word == "muster"]
            for program in programs:
                assert (image / "usr/local/bin/muster" if program == "muster" else image / program[1:]).exists(), (name, program)


# Pods


def end_well(pods):
    for pod in pods:
        assert pod.process.wait(4 * LIMIT) == 0, pod.process.describe()
        assert "there is no such setting" not in output([pod]) + pod.process.stderr


def are_equal(text, ranks):
    """Each rank has reported, and all have the same weights."""
    reports = {int(rank): (size, weights) for rank, size, _, _, _, weights in REPORT_LINE.findall(text)}
    assert sorted(reports) == list(range(ranks)) and len(set(reports.values())) == 1, text
    assert set(size for size, _ in reports.values()) == {str(ranks)}
    return reports[0][1]


def all_pods(namespace):
    return [namespace.start(job, index) for job in namespace.jobs for index in range(job.completions)]


def output(pods):
    # `muster run` puts the rank before the lines of its workers.
    return re.sub(r"^\[rank \d+\] ", "", "\n".join(pod.process.stdout for pod in pods), flags=re.M)


@pytest.fixture
def certificates(tmp_path):
    """Runs as job-tls.yaml says."""
    command, = re.findall(r"^#   (muster certs [^&]*?) &&", (MANIFESTS / "job-tls.yaml").read_text(), re.M)
    subprocess.run([MUSTER, *command.split()[1:]], cwd=tmp_path, env=clean_environment(), check=True, capture_output=True, timeout=LIMIT)
    return {"digits-tls": tmp_path / "certs" / "node"}


@pytest.mark.launchers
@pytest.mark.parametrize("name", ["job.yaml", "job-tls.yaml"])
def test_pods_of_a_job_find_rank_0_by_a_name_that_comes_later(name, image, certificates, tmp_path):
    with Namespace(documents(name), image, tmp_path, certificates) as namespace:
        pods = all_pods(namespace)
        for pod in pods[1:]:
            pod.process.wait_for(r'cannot resolve host "digits-0\.digits"', LIMIT)
        namespace.publish()
        end_well(pods)
        are_equal(output(pods), 4)
        last = "".join(pod.process.stdout.splitlines(True)[-1] for pod in pods)
        assert plain(last) == plain(SHOWN), "as the page has it"


def plain(text):
    """Without what may differ from processor to processor."""
    return re.sub(r"[\d.]+ %|\b[0-9a-f]{16}\b", "N", text)


@pytest.mark.launchers
def test_pods_of_a_job_set_have_four_workers_each(image, tmp_path):
    with Namespace(documents("jobset.yaml"), image, tmp_path) as namespace:
        pods = all_pods(namespace)
        namespace.publish()
        end_well(pods)
        are_equal(output(pods), 8)


def several_jobs():
    """jobset.yaml with what the page says of several Jobs."""
    document, = documents("jobset.yaml")
    replicated, = document["spec"]["replicatedJobs"]
    replicated["replicas"] = 2
    container, = replicated["template"]["spec"]["template"]["spec"]["containers"]
    changes = yaml.safe_load(SEVERAL_JOBS)
    container["command"] = changes["command"]
    container["env"] += changes["env"]
    return document, container


@pytest.mark.launchers
def test_several_jobs_of_a_set_are_one_cluster_and_what_an_earlier_attempt_left_is_not_of_it(image, tmp_path):
    document, _ = several_jobs()
    validate(document, VERSIONS[-1])
    with Namespace([document], image, tmp_path) as namespace:
        _, stale = namespace.jobs
        left = namespace.start(stale, 1)
        pods = [namespace.start(job, index) for job in jobs_of(document, attempt=1) for index in range(job.completions)]
        namespace.publish()
        end_well(pods)
        are_equal(output(pods), 8)
        left.process.wait_for(r'belongs to job "uid-of-digits-0", this scheduler to job "uid-of-digits-1"', LIMIT)
        assert left.process.wait(LIMIT) == 1


@pytest.mark.launchers
def test_pods_of_several_jobs_whose_indexes_repeat_are_refused_by_name(image, tmp_path):
    document, container = several_jobs()
    container["command"] = ["/usr/local/digits/train_digits"]
    settings = {"MUSTER_WORKER_NUM": "4", "MUSTER_SCHED_HOST": "digits-hosts-0-0.digits", "MUSTER_SCHED_PORT": "8118"}
    container["env"] += [{"name": name, "value": value} for name, value in settings.items()]
    with Namespace([document], image, tmp_path) as namespace:
        first, second = namespace.jobs
        pods = [namespace.start(first, index) for index in range(2)]
        namespace.publish()
        pods[0].process.wait_for("2 of 4 workers have come", LIMIT)
        late = namespace.start(second, 1)
        namespace.publish()
        assert late.process.wait(LIMIT) == 1
        holder = 'rank 1 of worker node "rank 1" on host digits-hosts-1-1 (pid 1) is already held by node "rank 1" on host digits-hosts-0-1'
        assert holder in late.process.stderr, late.process.describe()


@pytest.mark.launchers
def test_pods_are_lost_and_come_back_with_other_addresses(image, tmp_path):
    with Namespace(documents("recovery.yaml"), image, tmp_path) as namespace:
        pods = all_pods(namespace)
        namespace.publish()
        scheduler, *workers = pods
        workers[0].process.wait_for(r"epoch: 0, step: 0", LIMIT)

        lost = workers[2]
        namespace.kill(lost)
        cause = f'first cause: rank {lost.index} (node id "{lost.index}", host digits-{lost.index}, pid 1) is lost'
        until(lambda: cause in namespace.exec(workers[1], ["muster", "status"]).stdout, LIMIT, cause)
        workers[2] = namespace.start(lost.job, lost.index)
        assert workers[2].address != lost.address
        namespace.publish()
        workers[2].process.wait_for(r"loss is", LIMIT)

        namespace.kill(scheduler)
        again = namespace.start(scheduler.job)
        assert again.address != scheduler.address
        namespace.publish()
        end_well([*workers, again])
        are_equal(output(workers), 4)
        survivors = [pod for pod in workers if pod.index != lost.index]
        for pod in survivors:
            assert f"rank {lost.index} (" in pod.process.stderr, pod.process.describe()
