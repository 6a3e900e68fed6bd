"""The scheduler's name, while a name server changes its mind: it does not know it yet, knows another address, or is gone."""

import contextlib
import json
import os
import pathlib
import sys

import pytest

from cluster import MUSTER, Process
from networks import Hosts, not_tested
from nodes import await_joined, node, said
from packaged import BINDINGS

LIMIT = 60
PORT = 8118  # of a network of the test's own
NAME = "sched.test"
SERVER = pathlib.Path(__file__).resolve().parent / "programs" / "name_server.py"

SILENT = """
import socket, sys, time
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 53))
print("takes questions", flush=True)
time.sleep(600)  # never answers; it is killed with its test
"""
LINES = """
    c = join()
    hold("the scheduler moves")
    say(count=c.store_add("count", 1))
    say(sum=c.world.allreduce([c.rank + 1]))
    c.world.barrier()
    c.leave()
"""


class Named:
    """Two hosts, whose processes ask a name server of the test's own, on the first host."""

    def __init__(self, hosts, folder):
        self.hosts = hosts
        self.file = folder / "names.json"
        self.resolv = folder / "resolv.conf"
        self.resolv.write_text(f"nameserver {hosts.address('one', 0)}\noptions timeout:1 attempts:1\n")
        self.says({})

    def says(self, names):
        """What the server answers from now on; it never reads half a file."""
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(names))
        new.rename(self.file)

    def server(self):
        server = Process(self.hosts.command(0, [SERVER, self.hosts.address("one", 0), self.file]), name="name server")
        server.wait_for("answers", LIMIT)
        return server

    def start(self, host, program, name, env):
        """A process on this host that has the test's resolv.conf."""
        mount = f"mount --bind {self.resolv} /etc/resolv.conf && exec \"$@\""
        command = self.hosts.command(host, program)
        at = command.index("--") + 1
        command[at:at] = ["unshare", "--mount", "sh", "-ec", mount, "sh"]
        own = {"MS_SCHED_HOST": NAME, "MS_SCHED_PORT": PORT, "MS_WORKER_NUM": 2, "MUSTER_HOST_ID": f"host {host}", **env}
        return Process(command, own, name)


@pytest.fixture
def named(tmp_path):
    if os.geteuid() != 0:
        not_tested("only root may put another resolv.conf in place")
    with Hosts("one", "two") as hosts:
        yield Named(hosts, tmp_path)


def scheduler(named, address, env):
    return named.start(0, [MUSTER, "scheduler"], "scheduler", {"MS_ROLE": "MS_SCHED", "MUSTER_SCHED_BIND": address, **env})


def worker(named, rank, env):
    return named.start(rank, node(LINES), f"worker {rank}", {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": rank, **env})


def end_well(*processes):
    for process in processes:
        assert process.wait(LIMIT) == 0, process.describe()


def test_a_name_that_is_known_later_than_the_nodes_start(named, tmp_path):
    env = {"HOLD_FOLDER": tmp_path}
    (tmp_path / "the scheduler moves").touch()
    with contextlib.ExitStack() as stack:
        stack.enter_context(named.server())
        workers = [stack.enter_context(worker(named, rank, env)) for rank in range(2)]
        for process in workers:
            process.wait_for(f'cannot resolve host "{NAME}"', LIMIT)
        # The first of its addresses leads nowhere.
        named.says({NAME: ["10.77.0.77", named.hosts.address("one", 0)]})
        first = stack.enter_context(scheduler(named, "*", {}))
        end_well(*workers, first)
        assert [said(process)["sum"] for process in workers] == [[3], [3]]


def test_a_name_that_never_comes_is_told_when_the_time_is_up(named, tmp_path):
    env = {"HOLD_FOLDER": tmp_path, "MS_CLUSTER_TIMEOUT": 3}
    with named.server(), worker(named, 0, env) as process:
        assert process.wait(LIMIT) == 1, process.describe()
        words = said(process)
        assert words["error"] == "UNREACHABLE" and words["seconds"] >= 3, words
        assert f'cannot resolve host "{NAME}"' in words["sentence"] and "MS_SCHED_HOST" in words["sentence"], words


def test_a_name_server_that_does_not_answer_holds_nothing_up_but_the_attempt(named, tmp_path):
    """It takes questions, and says nothing; the node ends when its time is up, though a lookup is under way. The first attempt has
    5 s, and so long it must be told what is amiss."""
    address = named.hosts.address("one", 0)
    named.resolv.write_text(f"nameserver {address}\noptions timeout:30 attempts:5\n")
    env = {"HOLD_FOLDER": tmp_path, "MS_CLUSTER_TIMEOUT": 8}
    with Process(named.hosts.command(0, [sys.executable, "-c", SILENT, address]), name="silent") as silent:
        silent.wait_for("takes questions", LIMIT)
        with worker(named, 0, env) as process:
            assert process.wait(LIMIT) == 1, process.describe()
            words = said(process)
        assert words["error"] == "UNREACHABLE" and words["seconds"] < 30, words
        assert f'cannot resolve host "{NAME}": no answer from the name service in time' in words["sentence"], words


WAITING = """
import signal, sys, muster

class Alarm(Exception):
    pass

def on_alarm(number, frame): raise Alarm
signal.signal(signal.SIGALRM, on_alarm)
signal.alarm(1)
try:
    muster.init() if sys.argv[1] == "init" else muster.Scheduler(worker_num=1, sched_host="sched.test")
    sys.exit("it found the name")
except Alarm:
    print("a handler ran", flush=True)
"""


@pytest.mark.parametrize("call, env", [
    ("init", {"MS_ROLE": "MS_SCHED"}),
    ("Scheduler", {"MS_SCHED_HOST": None}),
    ("init", {"MS_SCHED_HOST": None, "RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": NAME, "MUSTER_SCHED_BIND": "*"}),
], ids=["scheduler", "scheduler of a program", "rank 0"])
def test_a_scheduler_that_waits_for_its_own_name_hears_signals(call, env, named):
    address = named.hosts.address("one", 0)
    named.resolv.write_text(f"nameserver {address}\noptions timeout:30 attempts:5\n")
    with Process(named.hosts.command(0, [sys.executable, "-c", SILENT, address]), name="silent") as silent:
        silent.wait_for("takes questions", LIMIT)
        with named.start(0, [sys.executable, "-c", WAITING, call], "program", {"PYTHONPATH": BINDINGS, **env}) as process:
            assert process.wait(LIMIT) == 0, process.describe()
            assert "a handler ran" in process.stdout, process.describe()


def test_the_time_for_the_scheduler_s_name_is_part_of_the_forming_time(named):
    """The nodes have the other half."""
    address = named.hosts.address("one", 0)
    named.resolv.write_text(f"nameserver {address}\noptions timeout:30 attempts:5\n")
    with Process(named.hosts.command(0, [sys.executable, "-c", SILENT, address]), name="silent") as silent:
        silent.wait_for("takes questions", LIMIT)
        env = {"MS_ROLE": "MS_SCHED", "MS_CLUSTER_TIMEOUT": 3}
        with named.start(0, [MUSTER, "scheduler"], "scheduler", env) as process:
            assert process.wait(LIMIT) != 0, process.describe()
            assert "no answer from the name service within 1.5 s" in process.stderr, process.describe()


def test_while_an_address_is_silent_its_name_is_looked_up_again(named, tmp_path):
    """The node's time is up before its first attempt is. Where nobody is any more, a node must not have to wait for that."""
    silent = "10.77.0.77"
    for host in range(2):
        named.hosts.sh(host, f"ip neighbour replace {silent} lladdr 02:00:00:00:00:99 dev net0 nud permanent")
    named.says({NAME: [silent]})
    env = {"HOLD_FOLDER": tmp_path, "MS_CLUSTER_TIMEOUT": 4}
    with named.server() as server, worker(named, 0, env) as process:
        assert process.wait(LIMIT) == 1, process.describe()
        assert said(process)["error"] == "UNREACHABLE" and "(1 attempt in" in said(process)["sentence"], said(process)
        asked = server.stdout.count(f"asked for {NAME}\n")
        assert asked >= 4, "two lookups, and each asks for both families"


@pytest.mark.parametrize("is_asked", [True, False], ids=["name server", "no name server"])
def test_a_scheduler_that_comes_back_is_found(is_asked, named, tmp_path):
    """Under another address, which its name stands for by then; or where it was, while no name service answers any more."""
    env = {"HOLD_FOLDER": tmp_path, "MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery"}
    old = named.hosts.address("one", 0)
    new = named.hosts.address("two", 0) if is_asked else old
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(named.server())
        named.says({NAME: [old]})
        first = stack.enter_context(scheduler(named, old, env))
        workers = [stack.enter_context(worker(named, rank, env)) for rank in range(2)]
        await_joined(*workers, timeout=LIMIT)
        if is_asked:
            named.says({NAME: [new]})
        else:
            server.kill()
        first.kill()
        first.wait(LIMIT)
        second = stack.enter_context(scheduler(named, new, env))
        (tmp_path / "the scheduler moves").touch()
        end_well(*workers, second)
        assert sorted(said(process)["count"] for process in workers) == [1, 2]
        assert [said(process)["sum"] for process in workers] == [[3], [3]]
