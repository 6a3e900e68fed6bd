"""What live nodes have said to their scheduler is recorded, and said again by others while the job works."""

import contextlib

import pytest

import wire
from cluster import Cluster
from nodes import await_joined, node, said
from tap import Tap

LIMIT = 60
TIMES = 100
WORKERS = 3

WORK = """
    c = join()
    rounds, over = 0, False
    while not over:
        ends, count = c.world.allreduce([int(os.path.exists(os.environ["END"])), 1])
        assert count == c.size
        over, rounds = ends > 0, rounds + 1
    say(lost=c.failed_ranks(), epoch=c.epoch, rounds=rounds)
    c.leave()
"""


def works(cluster, end):
    """The calls of all have gone on to this end, and nobody was lost."""
    end.touch()
    words = [said(worker) for worker in cluster.succeed(timeout=LIMIT)]
    assert all(each["lost"] == [] and each["epoch"] == 1 and each["rounds"] == words[0]["rounds"] for each in words), words
    told = "".join(process.stderr for process in cluster.processes)
    assert "panic" not in told and "is lost" not in told, told


@pytest.mark.parametrize("secret", [None, "correct horse battery staple"])
def test_recorded_registrations_of_live_nodes_make_nobody_lost(secret, tmp_path):
    """Without a secret one that replays a registration is taken for the node. The node registers again, and goes on."""
    end = tmp_path / "end"
    env = {"END": end, "MUSTER_JOB_SECRET": secret}
    with Cluster(node(WORK), workers=WORKERS, started=0, env=env) as cluster, Tap(cluster.port) as tap:
        for _ in range(WORKERS):
            cluster.start_worker({"MS_SCHED_PORT": tap.port})
        await_joined(*cluster.workers)
        recorded = [bytes(passed.sent) for passed in tap.connections]
        assert len(recorded) == len(tap.frames("sent", wire.REGISTER)) == WORKERS
        answers = []
        for turn in range(TIMES):
            # Where the node itself comes again meanwhile, the one that replays is put out.
            with wire.connect(cluster.port) as replay, contextlib.suppress(EOFError, ConnectionError):
                replay.socket.sendall(recorded[turn % WORKERS])
                answers.append(replay.receive(LIMIT))
                if secret:
                    answers[-1] = replay.receive(LIMIT)
        if secret:
            reasons = {wire.rejected(payload) for kind, payload in answers if kind == wire.REJECTED}
            assert len(reasons) == 1 and len(answers) == TIMES, answers
            (status, reason), = reasons
            assert status == wire.ERR_REJECTED and "the job's secret is another than that of the process that connects" in reason
            assert len(tap.connections) == WORKERS, "no node had to come again"
            told = [line for line in cluster.scheduler.stderr.splitlines() if "its job secret is another" in line]
            assert len(told) == 1 and "127.0.0.1:" in told[0], told
        else:
            assert {kind for kind, _ in answers} == {wire.FORMED}, answers
        works(cluster, end)
