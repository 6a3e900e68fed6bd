"""Short worker programs for a test, and what they said.

    with Cluster(node("c = join(); say(sum=c.world.allreduce([1])); c.leave()"), workers=2) as cluster:
        for worker in cluster.succeed(timeout=30):
            assert said(worker)["sum"] == [2]
"""

import contextlib
import json
import os
import pathlib
import signal
import textwrap

from cluster import Cluster, Process

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs" / "node.py"
JOIN_AND_LEAVE = "c = join(); c.leave()"
# A refusal, or a bad setting, is told without waiting for anything; the slack is for a busy machine.
AT_ONCE_SECONDS = 3.0


def node(lines=JOIN_AND_LEAVE):
    """The command that runs these lines in programs/node.py."""
    return [PROGRAM, textwrap.dedent(lines)]


def said(process):
    """All that a node said, as one dictionary."""
    words = {}
    for line in process.stdout.splitlines():
        words.update(json.loads(line))
    return words


def await_joined(*processes, timeout=30):
    for process in processes:
        process.wait_for('"joined"', timeout)


def failed_at_once(process, status, *parts, timeout=30):
    """The process ends with this status, without having waited, and its sentence has all these parts."""
    assert process.wait(timeout) == 1
    words = said(process)
    assert words["error"] == status, words
    assert words.get("seconds", 0.0) < AT_ONCE_SECONDS, words
    for part in parts:
        assert str(part) in words["sentence"], f"{part!r} is not in {words['sentence']!r}"
    return words["sentence"]


def alone_fails_at_once(env, status, *parts, lines=JOIN_AND_LEAVE):
    """A process with these settings fails before it has tried to reach anybody."""
    with Process(node(lines), env) as process:
        return failed_at_once(process, status, *parts)


COMES_BACK = """
    c = join()
    if c.restarts == 0:
        c.world.barrier()
        if c.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        say(broken=fails(c.world.barrier))
        c.recover(60_000)
    say(sum=c.world.allreduce([c.rank]), epoch=c.epoch)
    c.leave()
"""


def one_of_two_dies_and_comes_back(recovery, env, timeout):
    """With recovery in this directory, and these settings: both work on in the second epoch, and all end well."""
    with Cluster(node(COMES_BACK), workers=2, env={**env, "MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": recovery}) as cluster:
        assert cluster.workers[1].wait(timeout) == -signal.SIGKILL
        cluster.start_worker({"MS_NODE_ID": 1})
        for process in (cluster.workers[0], cluster.workers[2], cluster.scheduler):
            assert process.wait(timeout) == 0, process.describe()
        for process in (cluster.workers[0], cluster.workers[2]):
            assert said(process)["sum"] == [1] and said(process)["epoch"] == 2


def process_of(pid):
    """How a process is named towards the scheduler: its number, its start time, and the namespaces of both."""
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pids, times = (os.stat(f"/proc/self/ns/{name}").st_ino for name in ("pid", "time"))
    return pid, int(stat[19]), pids ^ (times << 32 | times >> 32) % 2**64


def listening_ports(pid):
    """The ports on which a process listens, v4 or v6, from /proc."""
    sockets = set()
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed in the meantime
            sockets.add(os.readlink(descriptor))
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            local, state, inode = words[1], words[3], words[9]
            if state == "0A" and f"socket:[{inode}]" in sockets:
                ports.add(int(local.rsplit(":", 1)[1], 16))
    return ports
