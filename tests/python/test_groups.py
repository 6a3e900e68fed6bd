"""Groups that several processes make. A rank that makes another group, or none, is named to all; so is one that ends."""

from cluster import Cluster
from nodes import node, said
from test_breaking import await_running, named

TELL = """
        say(**told, again=fails(c.world.barrier))
        c.leave()
"""


def test_groups_work_across_processes():
    lines = """
        c = join()
        group = c.world.create([3, 1, 0])
        say(mine=None if group is None else [group.rank, group.allgather(c.rank)])
        half = c.world.split(c.rank % 2, -c.rank)
        say(half=[half.rank, half.allgather(c.rank)])
        for _ in range(20):
            inner = half.split(0)
            assert inner.allreduce([1]) == [2]
            inner.free()
        for each in (group, half):
            if each is not None:
                each.free()
        say(sum=c.world.allreduce([c.rank]))
        c.leave()
    """
    with Cluster(node(lines), workers=4) as cluster:
        words = [said(worker) for worker in cluster.succeed(timeout=60)]
        assert [each["mine"] for each in words] == [[2, [3, 1, 0]], [1, [3, 1, 0]], None, [0, [3, 1, 0]]]
        assert [each["half"] for each in words] == [[1, [2, 0]], [1, [3, 1]], [0, [2, 0]], [0, [3, 1]]]
        assert all(each["sum"] == [6] for each in words)


def test_a_rank_that_makes_another_group_is_named():
    lines = "c = join(); told = fails(c.world.create, [0, 1, 2] if c.rank == 2 else [0, 2, 1])" + TELL.replace(8 * " ", "")
    with Cluster(node(lines), workers=4) as cluster:
        words = [said(worker) for worker in cluster.succeed(timeout=30)]
        assert {each["error"] for each in words} == {"MISMATCH"}
        sentence, = {each["sentence"] for each in words}
        assert named(cluster.workers[2], 2) in sentence and sentence.count("group_create(") == 2, sentence
        assert {each["again"]["sentence"] for each in words} == {sentence}


def test_a_rank_that_makes_no_group_is_named_when_the_time_is_up(tmp_path):
    lines = """
        c = join()
        say(running=True)
        if c.rank == 1:
            hold("go")
        c.world.set_timeout(700)
        told = fails(c.world.split, 0)
        if c.rank == 0:
            say(first=True)
    """ + TELL
    with Cluster(node(lines), workers=3, env={"HOLD_FOLDER": tmp_path}) as cluster:
        await_running(cluster.workers)
        cluster.workers[0].wait_for('"first"', timeout=30)
        (tmp_path / "go").touch()
        words = [said(worker) for worker in cluster.succeed(timeout=30)]
        assert {each["error"] for each in words} == {"TIMEOUT"}
        sentence, = {each["sentence"] for each in words}
        assert named(cluster.workers[1], 1) in sentence, sentence
        assert "never entered group_split #1 on world" in sentence, sentence


def test_a_rank_that_dies_while_others_make_a_group_is_named(tmp_path):
    lines = """
        c = join()
        say(running=True)
        if c.rank == 1:
            hold("never")
        told = fails(c.world.split, 0)
    """ + TELL
    with Cluster(node(lines), workers=3, env={"HOLD_FOLDER": tmp_path}) as cluster:
        await_running(cluster.workers)
        cluster.workers[1].kill()
        for rank in (0, 2):
            assert cluster.workers[rank].wait(timeout=30) == 0
            words = said(cluster.workers[rank])
            assert words["error"] == "PEER_LOST" and words["sentence"].startswith(named(cluster.workers[1], 1)), words


def test_a_rank_that_cannot_make_a_group_revokes_it_for_those_that_have():
    lines = """
        import os, resource
        c = join()
        open_files = []
        if c.rank == 1:
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
            try:
                while True:
                    open_files.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                pass
        try:
            group = c.world.create([0, 1, 2])
        except MusterError:
            group = c.world
        if c.rank == 1:
            for each in open_files:
                os.close(each)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        say(has_made=group is not c.world, **fails(group.barrier))
        c.leave()
    """
    with Cluster(node(lines), workers=3) as cluster:
        words = [said(worker) for worker in cluster.succeed(timeout=30)]
        assert not words[1]["has_made"]
        for each in words:
            assert each["error"] == "SYSTEM" and named(cluster.workers[1], 1) in each["sentence"], words
