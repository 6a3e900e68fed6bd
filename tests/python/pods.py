"""What Kubernetes makes of a manifest, on this machine: pods with their exact command and environment, and names for them.

    with Namespace(documents("job.yaml"), image, tmp_path) as namespace:
        pods = [namespace.start(job, index) for job in namespace.jobs for index in range(job.completions)]
        namespace.publish()

A pod has network, host name, processes and mounts of its own; all pods are on one network, and ask one name server. The image lies
over /usr/local; volumes lie in /mnt. Users, capabilities and file systems that can't be written are those of the manifest. What
Kubernetes adds is here as its documentation has it: labels, the index, host names, the search list of resolv.conf. Nothing
here knows what muster wants: if a manifest names the wrong Service, a name is never found.
Deliberately not here: scheduling, probes, limits, restarts. A test starts the pod that the controller would start.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import yaml

from cluster import TREE, Process
from launch import until
from networks import not_tested
from test_names import SERVER

LIMIT = 120
MANIFESTS = TREE / "deploy" / "kubernetes"
DOMAIN = "default.svc.cluster.local"
GATEWAY = "10.88.0.1"
INDEX = "batch.kubernetes.io/job-completion-index"
JOB_SET = "jobset.sigs.k8s.io"
# What the kubelet tells pods of Services of the same namespace, called `muster` and `master`, unless they want no such links.
LINKS = {f"{name}_{key}": value for name in ("MUSTER", "MASTER")
         for key, value in [("SERVICE_HOST", "10.96.0.7"), ("SERVICE_PORT", "80"), ("PORT", "tcp://10.96.0.7:80")]}
IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The mounts of a container; then its user's rights and its program.
CONTAINER = """
mount -t tmpfs pod /mnt
while [ "$1" != -- ]; do
    case $2 in /mnt/*) mkdir -p "$2" ;; esac
    mount --bind "$1" "$2"
    shift 2
done
shift
mount -o remount,bind,ro /
exec "$@"
"""


def documents(name):
    return [document for document in yaml.safe_load_all((MANIFESTS / name).read_text()) if document]


@dataclasses.dataclass
class Job:
    """A Job that somebody has applied, or that JobSet has made."""

    name: str
    spec: dict
    labels: dict
    subdomain: str | None

    @property
    def is_indexed(self):
        return self.spec.get("completionMode") == "Indexed"

    @property
    def completions(self):
        return self.spec.get("completions", 1)


def job_of(name, spec, labels=None, subdomain=None):
    template = spec["template"]
    own = {"batch.kubernetes.io/job-name": name, "batch.kubernetes.io/controller-uid": f"uid-of-{name}"}
    every = {**template.get("metadata", {}).get("labels", {}), **own, **(labels or {})}
    return Job(name, spec, every, template["spec"].get("subdomain", subdomain))


def jobs_of(document, attempt=0):
    """The Jobs that come of it; of a JobSet in this of its attempts."""
    name = document["metadata"]["name"]
    if document["kind"] == "Job":
        return [job_of(name, document["spec"])]
    if document["kind"] != "JobSet":
        return []
    subdomain = document["spec"].get("network", {}).get("subdomain", name)
    copies = [(replicated, at) for replicated in document["spec"]["replicatedJobs"] for at in range(replicated.get("replicas", 1))]
    return [job_of(f"{name}-{replicated['name']}-{at}", replicated["template"]["spec"], of_job_set(name, replicated, at, number, attempt), subdomain)
            for number, (replicated, at) in enumerate(copies)]


def of_job_set(name, replicated, at, number, attempt):
    """What JobSet writes on its Jobs and their pods."""
    values = {"jobset-name": name, "jobset-uid": f"uid-of-{name}", "replicatedjob-name": replicated["name"], "job-index": at,
              "job-global-index": number, "restart-attempt": attempt}
    return {f"{JOB_SET}/{key}": str(value) for key, value in values.items()}


def services_of(document):
    """Selectors of headless Services, by name."""
    name = document["metadata"]["name"]
    if document["kind"] == "JobSet":
        return {document["spec"].get("network", {}).get("subdomain", name): {f"{JOB_SET}/jobset-name": name}}
    return {name: document["spec"]["selector"]} if document["kind"] == "Service" else {}


def field(path, pod):
    """The downward API."""
    kind, key = re.fullmatch(r"metadata\.(\w+)\['(.+)'\]", path).groups()
    return {"labels": pod.job.labels, "annotations": pod.annotations}[kind][key]


def expanded(text, environment):
    """Names in $( ) up to the first closing bracket, if there is such a variable; $$ is a dollar."""
    return re.sub(r"\$\$|\$\(([^)]*)\)", lambda found: "$" if found[1] is None else environment.get(found[1], found[0]), text)


@dataclasses.dataclass
class Pod:
    """One of its lives: another one has another name and address."""

    job: Job
    index: int
    address: str
    pause: Process
    number: int
    process: Process | None = None

    @property
    def hostname(self):
        return f"{self.job.name}-{self.index}" if self.job.is_indexed else f"{self.job.name}-x{self.number}"

    @property
    def annotations(self):
        return {INDEX: str(self.index)} if self.job.is_indexed else {}

    def environment(self, container):
        """In the order in which the kubelet sets it: a value may refer to those before it."""
        environment = {"PATH": IMAGE_PATH, "HOSTNAME": self.hostname, "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
        environment |= LINKS if self.job.spec["template"]["spec"].get("enableServiceLinks", True) else {}
        for entry in container.get("env", []):
            if "value" in entry:
                environment[entry["name"]] = expanded(entry["value"], environment)
            else:
                environment[entry["name"]] = field(entry["valueFrom"]["fieldRef"]["fieldPath"], self)
        if self.job.is_indexed:
            environment["JOB_COMPLETION_INDEX"] = str(self.index)
        return environment


class Namespace:
    """Documents of a manifest that were applied: their Jobs, and the network of their pods."""

    def __init__(self, applied, image, folder, secrets=None):
        self.jobs = [job for document in applied for job in jobs_of(document)]
        self.services = {name: selector for document in applied for name, selector in services_of(document).items()}
        self.image, self.folder, self.secrets = image, folder, secrets or {}
        self.names = folder / "names.json"
        self.pods = []
        self.numbers = itertools.count(2)

    def job(self, name):
        return next(job for job in self.jobs if job.name == name)

    # Pods

    def start(self, job, index=0):
        number = next(self.numbers)
        pod = Pod(job, index, f"10.88.0.{number}", None, number)
        pod.pause = self._stands(["unshare", "--net", "--uts", "sh", "-ec", f"hostname {pod.hostname}; {STANDS}"], f"pause {pod.hostname}")
        self.sh(self.hub, f"ip link add pod{number} type veth peer name eth0 netns {pod.pause.pid}; ip link set pod{number} master pods up")
        self.sh(pod.pause, f"ip link set lo up; ip address add {pod.address}/16 dev eth0; ip link set eth0 up")
        pod.process = self._container(pod)
        self.pods.append(pod)
        return pod

    def kill(self, pod):
        """Its processes, all at once, and then its network."""
        os.killpg(pod.process.pid, signal.SIGKILL)
        pod.process.wait(LIMIT)
        pod.pause.close()
        self.pods.remove(pod)
        self.gone.append(pod)

    def exec(self, pod, words):
        """What `kubectl exec` does: a further program in the container, with its environment. What came of it."""
        child, = pathlib.Path(f"/proc/{pod.process.pid}/task/{pod.process.pid}/children").read_text().split()
        entered = ["nsenter", f"--target={child}", "--net", "--uts", "--mount", "--pid", "--", *self._as_user(pod), *words]
        return subprocess.run(entered, capture_output=True, text=True, timeout=LIMIT)

    def _container(self, pod):
        template = pod.job.spec["template"]["spec"]
        container, = template["containers"]
        environment = pod.environment(container)
        command = [expanded(word, environment) for word in container["command"] + container.get("args", [])]
        inside = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", CONTAINER, "sh"]
        words = [*inside, *self._mounts(pod, template, container), "--", *self._as_user(pod), *command]
        return Process(self.enters(pod.pause, words), name=f"pod {pod.hostname}")

    @staticmethod
    def _as_user(pod):
        """What gives a program the manifest's user and environment, and nothing else."""
        template = pod.job.spec["template"]["spec"]
        container, = template["containers"]
        rights = template["securityContext"]
        groups = f"--groups={rights['fsGroup']}" if "fsGroup" in rights else "--clear-groups"
        user = ["setpriv", f"--reuid={rights['runAsUser']}", f"--regid={rights['runAsGroup']}", groups, "--no-new-privs",
                "--inh-caps=-all", "--bounding-set=-all"]
        return [*user, "env", "-i", *(f"{name}={value}" for name, value in pod.environment(container).items())]

    def _mounts(self, pod, template, container):
        """Pairs: what, and where to."""
        hosts = self.folder / f"hosts-{pod.number}"
        hosts.write_text(f"127.0.0.1\tlocalhost\n{pod.address}\t{pod.hostname}\n")
        files = [(self.image / "usr" / "local", "/usr/local"), (self.folder / "resolv.conf", "/etc/resolv.conf"), (hosts, "/etc/hosts")]
        sources = {volume["name"]: self._volume(pod, volume, template) for volume in template.get("volumes", [])}
        volumes = [(sources[mount["name"]], mount["mountPath"]) for mount in container.get("volumeMounts", [])]
        for _, place in volumes:
            assert place.startswith("/mnt/"), "elsewhere a folder would have to be made on this machine"
        return [str(word) for pair in files + volumes for word in pair]

    def _volume(self, pod, volume, template):
        if "persistentVolumeClaim" in volume:
            return self._made(f"claim-{volume['persistentVolumeClaim']['claimName']}", template, 0o775)
        if "secret" in volume:
            secret = volume["secret"]
            place = self._made(f"secret-{pod.number}", template, 0o755)
            for file in self.secrets[secret["secretName"]].iterdir():
                copy = place / file.name
                shutil.copy(file, copy)
                os.chown(copy, 0, template["securityContext"].get("fsGroup", 0))
                copy.chmod(secret["defaultMode"])
            return place
        assert volume["emptyDir"] == {}, "no other kind of volume is known here"
        return self._made(f"empty-{pod.number}-{volume['name']}", template, 0o777)

    def _made(self, name, template, mode):
        place = self.folder / name
        place.mkdir(exist_ok=True)
        os.chown(place, 0, template["securityContext"].get("fsGroup", 0))
        place.chmod(mode)
        return place

    # Names

    def publish(self):
        """The name server learns of the pods that there are now."""
        names = {}
        for service, selector in self.services.items():
            for pod in self.pods:
                if selector.items() <= pod.job.labels.items():
                    names.setdefault(f"{service}.{DOMAIN}", []).append(pod.address)
                    if pod.job.subdomain == service:
                        names[f"{pod.hostname}.{service}.{DOMAIN}"] = [pod.address]
        self._says(names)

    def _says(self, names):
        new = self.names.with_suffix(".new")  # the server never reads half a file
        new.write_text(json.dumps(names))
        new.rename(self.names)

    # The machine

    @staticmethod
    def enters(holder, words):
        return ["nsenter", f"--target={holder.pid}", "--net", "--uts", "--", *words]

    def sh(self, holder, line):
        done = subprocess.run(self.enters(holder, ["sh", "-ec", line]), capture_output=True, text=True, timeout=LIMIT)
        # A kernel may lack what a line asks for (veth, bridge): then there is no network for pods.
        if done.returncode != 0:
            not_tested(f"this machine does not do {line!r}: {done.stderr.strip()}")

    def _stands(self, words, name):
        holder = self.stack.enter_context(Process(words, name=name))
        until(lambda: holder.returncode is not None or "stands" in holder.stdout, LIMIT, "namespaces of its own")
        # A container may forbid namespaces, and pods can't be had without.
        if holder.returncode is not None:
            not_tested(f"this machine allows no namespaces: {holder.stderr.strip()}")
        return holder

    def __enter__(self):
        if os.geteuid() != 0:
            not_tested("only root may give a process another user and other mounts")
        self.stack, self.gone = contextlib.ExitStack(), []
        try:
            self.hub = self._stands(["unshare", "--net", "--uts", "sh", "-ec", STANDS], "the pods' network")
            # A bridge without an address of its own takes that of some pod, another one whenever a pod comes or goes.
            own = "address 02:00:00:00:00:01"
            self.sh(self.hub, f"ip link add pods {own} type bridge; ip address add {GATEWAY}/16 dev pods; ip link set pods up")
            (self.folder / "resolv.conf").write_text(
                f"nameserver {GATEWAY}\nsearch {DOMAIN} svc.cluster.local cluster.local\noptions ndots:5 timeout:1\n")
            self._says({})
            words = self.enters(self.hub, [sys.executable, str(SERVER), GATEWAY, str(self.names)])
            self.stack.enter_context(Process(words, name="names")).wait_for("answers", LIMIT)
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, kind, error, trace):
        for pod in self.gone + self.pods:
            if pod.process is not None:
                pod.process.__exit__(kind, error, trace)
        self.stack.close()


STANDS = "echo stands; exec sleep 600"
