"""A process that has no descriptor left for a link: every rank hears whose limit that is, and what would be right."""

import pytest

from cluster import Cluster
from nodes import JOIN_AND_LEAVE, failed_at_once, node, said
from test_breaking import named

LIMIT = 64
CALLS = {
    # The one at its limit dials, is dialled, and both.
    "send": "c.world.send(b'a' * 100_000, 0) if c.rank == 1 else c.world.receive(100_000, 1) if c.rank == 0 else c.world.barrier()",
    "receive": "hold('go') if c.rank == 1 else c.world.send(b'a' * 100_000, 1) if c.rank == 0 else c.world.barrier()",
    "dialled": "hold('go') if c.rank == 1 else c.world.barrier()",
    "barrier": "c.world.barrier()",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_process_without_a_descriptor_for_a_link_is_named_with_its_limit(call, tmp_path):
    lines = f"""
        import os, resource
        c = join()
        files = []
        if c.rank == 1:
            c.world.send(b'a', 1)  # what messages need besides links is there then
            c.world.receive(1, 1)
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, limits[1]))
            try:
                while True:
                    files.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                os.mkdir(os.environ["HOLD_FOLDER"] + "/full")  # which takes no descriptor
        hold("full")
        c.world.set_timeout(60_000)
        try:
            {CALLS[call]}
            say(error=None)
        except MusterError as error:
            say(error=error.status, sentence=error.sentence)
        if c.rank == 0:
            open(os.environ["HOLD_FOLDER"] + "/go", "w").close()
        for each in files:
            os.close(each)
        say(again=fails(c.world.barrier))
        c.leave()
    """
    with Cluster(node(lines), workers=3, env={"HOLD_FOLDER": tmp_path}) as cluster:
        words = [said(worker) for worker in cluster.succeed(timeout=40)]
        cause = f"{named(cluster.workers[1], 1)} has no descriptor left for a link to rank "
        assert [each["again"]["error"] for each in words] == ["SYSTEM"] * 3, words
        sentence, = {each["again"]["sentence"] for each in words}
        assert cause in sentence and f"; its process may hold {LIMIT}: raise that limit (ulimit -n)" in sentence, sentence
        assert words[0]["error"] == "SYSTEM" and words[0]["sentence"] == sentence, words


def test_a_call_that_can_open_nothing_says_how_to_raise_the_limit():
    lines = f"""
        import os, resource
        c = join()
        resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        files = []
        try:
            while True:
                files.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        say(**fails(c.world.send, b"a", 0))
        for each in files:
            os.close(each)
        c.leave()
    """
    with Cluster(node(lines), workers=1) as cluster:
        words = said(cluster.succeed(timeout=30)[0])
        assert words["error"] == "SYSTEM" and "raise this process's limit of descriptors (ulimit -n)" in words["sentence"], words


def test_a_scheduler_that_can_never_hold_its_nodes_says_so_at_once():
    lines = f"import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}))\n{JOIN_AND_LEAVE}"
    with Cluster(node(lines), workers=100, started=0) as cluster:
        failed_at_once(cluster.scheduler, "LIMIT", "need", f"a process may hold {LIMIT} here: raise the hard limit (ulimit -Hn)")
