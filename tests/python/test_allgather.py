"""The smoke test that everybody runs first, in both languages."""

import signal

import pytest

from cluster import EXAMPLES, LIBRARY, TREE, Cluster, Process
from test_status import until_told

PROGRAMS = {"c": [EXAMPLES / "allgather"], "python": [TREE / "examples" / "allgather" / "allgather.py"]}


@pytest.mark.parametrize("language", PROGRAMS)
def test_every_rank_prints_the_ranks_in_order(language):
    with Cluster(PROGRAMS[language], workers=4) as cluster:
        for worker in cluster.succeed(timeout=60):
            assert worker.stdout == "[[0.], [1.], [2.], [3.]]\n"
        assert cluster.scheduler.stdout == ""


def test_both_languages_meet_in_one_cluster_without_node_ids():
    with Cluster(PROGRAMS["c"], workers=3, started=1, numbered=False) as cluster:
        cluster.start_worker(program=PROGRAMS["python"])
        cluster.start_worker(program=PROGRAMS["python"], env={"MUSTER_LIBRARY": LIBRARY})
        for worker in cluster.succeed(timeout=60):
            assert worker.stdout == "[[0.], [1.], [2.]]\n"


@pytest.mark.parametrize("language", PROGRAMS)
def test_alone_without_any_setting(language):
    with Process(PROGRAMS[language]) as alone:
        assert alone.wait(timeout=30) == 0
        assert alone.stdout == "[[0.]]\n"


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_failure_is_told_in_words_and_by_the_exit_code(language):
    with Process(PROGRAMS[language], {"MS_ROLE": "MS_NOBODY", "MS_WORKER_NUM": 1}) as process:
        assert process.wait(timeout=30) != 0
        assert "MS_ROLE" in process.stderr and "MS_NOBODY" in process.stderr
        assert process.stdout == ""


def test_an_interrupt_ends_the_one_in_python_while_it_waits_for_the_others():
    with Cluster(PROGRAMS["python"], workers=2, started=1) as cluster:
        until_told(cluster.port, lambda answer: answer["nodes"], "one waits in muster_init")
        cluster.workers[0].signal(signal.SIGINT)
        assert cluster.workers[0].wait(timeout=60) == -signal.SIGINT
