"""The names that MindSpore's users know, and settings in code."""

import sys

import pytest

from cluster import Cluster, Process
from nodes import said
from packaged import packaged, the_package
from pages import Page

muster = the_package()
from muster import _config, _library, _times  # noqa: E402

NAMES = """
    import numpy as np
    muster.init("hccl")
    rank = muster.get_rank()
    assert [muster.get_rank("hccl_world_group"), muster.get_group_size(), muster.get_local_rank(), muster.get_local_rank_size()] == [rank, 4, rank, 4]
    if rank in (3, 1):
        group = muster.create_group("odd", [3, 1])
        assert muster.get_rank("odd") == [3, 1].index(rank) and muster.get_group_size("odd") == 2
        assert muster.get_process_group_ranks("odd") == [3, 1] and muster.get_process_group_ranks() == [0, 1, 2, 3]
        assert muster.get_world_rank_from_group_rank("odd", 0) == 3 and muster.get_group_rank_from_world_rank(1, "odd") == 1
        assert [muster.get_local_rank("odd"), muster.get_local_rank_size("odd")] == [muster.get_rank("odd"), 2]
        assert group.allgather(np.array([rank])).tolist() == [[3], [1]]
        assert "odd" in told(muster.create_group, "odd", [3, 1])["sentence"]
        muster.destroy_group("odd")
        assert "odd" in told(muster.get_rank, "odd")["sentence"]
    assert told(muster.destroy_group, "even")["error"] == "InvalidError"
    muster.release()
    assert told(muster.get_rank)["error"] == "StateError"
    say(ended=True)
"""


def test_the_names_that_users_know():
    with Cluster(packaged(NAMES), workers=4) as cluster:
        assert all(said(worker)["ended"] for worker in cluster.succeed(timeout=90))


def test_local_ranks_are_those_of_hosts_whatever_their_names():
    lines = """
        with muster.init() as c:
            say(local=[muster.get_local_rank(), muster.get_local_rank_size(), c.local_rank, c.local_size])
    """
    with Cluster(packaged(lines), workers=2, started=0) as cluster:
        for host in ("a", "b"):  # of one name
            cluster.start_worker({"MUSTER_HOST_ID": host})
        assert [said(worker)["local"] for worker in cluster.succeed(timeout=90)] == [[0, 1, 0, 1]] * 2


def test_settings_in_code_alone():
    lines = """
        import subprocess
        scheduler = muster.Scheduler(worker_num=2)
        port = int(scheduler.address.rpartition(":")[2])
        code = f"import sys; sys.path.insert(0, {sys.path[0]!r}); import muster; " + \\
               f"c = muster.init(role='worker', sched_host='127.0.0.1', sched_port={port}, worker_num=2, enable_ssl=False, log=None); " + \\
               "print(c.world.allgather_object(c.rank))"
        other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        with muster.init(role="worker", sched_host="127.0.0.1", sched_port=port, worker_num=2, environment=False) as c:
            mine = c.world.allgather_object(c.rank)
        say(mine=mine, other=other.communicate(timeout=60)[0].strip(), code=other.returncode)
        scheduler.wait(60)
    """
    with Process(packaged(lines)) as process:
        assert process.wait(timeout=90) == 0, process.describe()
        assert said(process) == {"mine": [0, 1], "other": "[0, 1]", "code": 0}


@pytest.mark.parametrize("call, error, words", [
    ("muster.init(role='sched')", "ConfigError", ["role is 'sched'", "'worker', 'server' or 'scheduler'"]),
    ("muster.init(worker_nun=2)", "ConfigError", ["worker_nun", "worker_num"]),
    ("muster.init(role='worker')", "ConfigError", ["worker_num"]),
    ("muster.Scheduler(worker_num=0)", "ConfigError", ["worker_num", "0"]),
    ("muster.init(job_id=b'mine')", "InvalidError", ["job_id: is of the type bytes", "decode()"]),
    ("muster.set_log(print, 'loud')", "InvalidError", ["loud", "warning"]),
    ("muster.set_log(5)", "InvalidError", ["function: 5 cannot be called"]),
    ("muster.init().operation(None)", "InvalidError", ["function: None cannot be called"]),
])
def test_wrong_settings_are_told(call, error, words):
    with Process(packaged(f"say(**told(lambda: {call}))")) as process:
        assert process.wait(timeout=60) == 0, process.describe()
        assert said(process)["error"] == error
        for word in words:
            assert word in said(process)["sentence"], said(process)["sentence"]


@pytest.mark.parametrize("role", [*_config.ROLES, *_config.ROLES.values()])
def test_a_role_has_two_names(role):
    with _config.Config({"role": role}, environment=False) as config:
        assert config.get("role") == _config.ROLES.get(role, role)


@pytest.mark.parametrize("value, text", [
    (None, "300"), (muster.DEFAULT, "300"), (2.5, "2.5"), (float("inf"), "-1"), (-1, "-1"), (float("-1"), "-1.0"),
])
def test_a_time_among_the_settings(value, text):
    with _config.Config({"store_timeout": value}, environment=False) as config:
        assert config.get("store_timeout") == text


@pytest.mark.parametrize("seconds", [None, float("inf"), 1e306, sys.float_info.max, 10**400, 2**63, 2**63 // 1000 + 1])
def test_a_time_that_no_clock_reaches_is_without_limit(seconds):
    assert _times.milliseconds(seconds) == _library.NO_LIMIT


def test_times_without_limit_are_those_of_the_page():
    rows = [line for line in Page("docs", "settings.md").text.splitlines() if "| seconds, or negative |" in line]
    assert {row.split("`")[1] for row in rows} == set(_config.ENDLESS)
    for name in _config.ENDLESS:
        _config.Config({name: float("inf")}, environment=False).free()
    with pytest.raises(muster.ConfigError, match='node_timeout is "inf"'):
        _config.Config({"node_timeout": float("inf")}, environment=False)


@pytest.mark.parametrize("letter", ["\0", "\udc80"])
def test_a_password_that_is_no_text_is_refused_and_not_shown(letter):
    with pytest.raises(muster.InvalidError, match="client_password: has ") as refused:
        _config.Config({"client_password": f"hidden{letter}"}, environment=False)
    assert "hidden" not in str(refused.value)


def test_default_says_nothing_of_who_this_process_is(monkeypatch):
    """So it does not hide that the environment is another's."""
    monkeypatch.setenv("MUSTER_ROLE", "MS_WORKER")
    monkeypatch.setenv("MUSTER_NODE_ID", "of another")
    monkeypatch.setenv(_config.CLAIM, f"1 {_config._identity()}")
    with pytest.raises(muster.ConfigError, match="process 1, whose environment"):
        _config.refuse_inherited_identity({"node_id": muster.DEFAULT, "rank_id": None})


def test_the_log_goes_where_the_program_wants_it():
    lines = """
        import logging, queue
        heard = queue.SimpleQueue()
        muster.set_log(lambda *words: heard.put(words), "debug")
        with muster.init() as c:
            level, speaker, line = heard.get(timeout=30)
        muster.set_log(None)
        say(known=level in (logging.DEBUG, logging.INFO), speaker=speaker, line=line)
    """
    with Process(packaged(lines)) as alone:
        assert alone.wait(timeout=60) == 0, alone.describe()
        words = said(alone)
        assert words["known"] and words["speaker"] and words["line"] and alone.stderr == ""
