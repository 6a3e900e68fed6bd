"""One `muster run` for hosts behind a real sshd: a login has another environment, and connections end in their own ways."""

import os
import pathlib
import re
import signal

import pytest

from cluster import EXAMPLES
from launch import MARK, Launch, until
from many_hosts import LIMIT, plain
from nodes import node
from sshd import Sshd
from test_many_hosts import HOLDS, all_run, said
from test_train_digits import REPORT_LINE

pytestmark = pytest.mark.launchers


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    with Sshd(tmp_path_factory.mktemp("sshd")) as sshd:
        yield sshd


def launch(sshd, *words, cwd, env=None, slots=2):
    """Both names are this host, so its loopback reaches the scheduler."""
    words = ["-H", f"one:{slots},two:{slots}", "--master_addr=127.0.0.1", "-x", MARK, *words]
    return Launch(f"--ssh={sshd.ssh}", *words, cwd=cwd, env=env)


def test_ranks_find_each_other_and_what_they_were_told(sshd, tmp_path):
    lines = """
        c = join()
        say(sum=c.world.allreduce([c.rank]), folder=os.getcwd(), colour=os.environ["COLOUR"], log=os.environ.get("MUSTER_LOG"),
            other=os.environ.get("NOT_PASSED"))
        c.leave()
    """
    folder = tmp_path / "a folder's name"
    folder.mkdir()
    settings = {"COLOUR": "it's blue", "NOT_PASSED": 1, "MUSTER_LOG": "error"}
    with launch(sshd, "-x", "COLOUR", *node(lines), cwd=folder, env=settings) as run:
        assert run.wait(LIMIT) == 0, run.describe()
        for rank, words in said(run).items():
            assert (words["rank"], words["sum"]) == (rank, [6])
            assert (words["folder"], words["colour"], words["log"], words["other"]) == (str(folder), "it's blue", "error", None)
        assert len(said(run)) == 4
    sshd.no_sessions()


def test_the_digits_trainer_ends_with_equal_weights(sshd, tmp_path):
    with launch(sshd, EXAMPLES / "train_digits", "--epochs", "2", cwd=tmp_path, slots=4) as run:
        assert run.wait(LIMIT) == 0, run.describe()
        reports = REPORT_LINE.findall(plain(run.stdout))
        assert sorted(int(report[0]) for report in reports) == list(range(8)) and len({report[-1] for report in reports}) == 1


def test_a_failures_code_comes_back(sshd, tmp_path):
    lines = "c = join(); os._exit(7) if c.rank == 2 else c.store_get('nobody sets this')"
    with launch(sshd, *node(lines), cwd=tmp_path) as run:
        assert run.wait(LIMIT) == 7, run.describe()
        assert "muster: host two:\nmuster: first failure: worker 2 (pid " in run.stderr, run.stderr
        run.nothing_left(LIMIT)
    sshd.no_sessions()


def client(run, name):
    """The ssh process that leads to this name."""
    for pid in run.descendants():
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if name.encode() in words and words[0].endswith(b"ssh"):
            return pid
    raise AssertionError(f"nothing leads to {name}")


def test_the_end_of_a_connection_ends_the_run_on_all_hosts(sshd, tmp_path):
    with launch(sshd, *node(HOLDS), cwd=tmp_path) as run:
        all_run(run, 4)
        os.kill(client(run, "two"), signal.SIGKILL)
        assert run.wait(LIMIT) == 1, run.describe()
        assert re.search(r"^muster: first failure: host two: the connection ended: .*ssh was ended by signal 9$", run.stderr, re.M)
        run.nothing_left(LIMIT)
    sshd.no_sessions()


def test_a_launcher_that_is_killed_leaves_nothing_behind_ssh(sshd, tmp_path):
    with launch(sshd, *node("signal.signal(signal.SIGTERM, signal.SIG_IGN);" + HOLDS), cwd=tmp_path) as run:
        all_run(run, 4)
        run.kill()
        run.wait(LIMIT)
        run.nothing_left(LIMIT)
    sshd.no_sessions()


def test_what_ssh_says_is_told_with_the_host(sshd, tmp_path):
    with Launch(f"--ssh={sshd.ssh}", "-H", "one,closed", "true", cwd=tmp_path) as run:
        assert run.wait(LIMIT) == 1, run.describe()
        assert "[closed] ssh: connect to host 127.0.0.1 port 1: Connection refused" in run.stderr
        assert "muster: host closed: " in run.stderr and "so nothing was started" in run.stderr
    until(lambda: not sshd.sessions(), LIMIT, "the other host was left again")
