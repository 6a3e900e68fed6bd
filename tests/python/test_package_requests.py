"""Requests of the package: waiting, asking, giving up, and awaiting in an event loop."""

from cluster import Cluster
from nodes import said
from packaged import packaged


def run(lines, workers=2, timeout=90):
    with Cluster(packaged(lines), workers=workers) as cluster:
        return [said(worker) for worker in cluster.succeed(timeout)]


def test_a_request_is_waited_for_asked_and_tells_the_same_again():
    lines = """
        with muster.init() as c:
            w, box = c.world, bytearray(5)
            if c.rank == 0:
                request = w.irecv(box, source=1)
                assert request.test() is False and request.done is False
                try:
                    request.wait(0.02)
                    raise AssertionError("has not waited in vain")
                except TimeoutError as error:
                    assert isinstance(error, muster.TimeoutError) and "0.02 s" in str(error)
                w.send(b"now", 1)
                assert request.wait(60) == request.wait() == muster.Received(1, 4, 5, "uint8")
                assert request.test() is True and request.done and box == b"hello"
                request.cancel()  # too late, and no error
            else:
                w.recv(bytearray(3))
                w.send(b"hello", 0, tag=4)
            say(ended=True)
    """
    assert all(words["ended"] for words in run(lines))


def test_cancelled_messages_end_alone_and_cancelled_collectives_revoke():
    lines = """
        with muster.init() as c:
            w = c.world
            request = w.irecv(bytearray(5), source=1 - c.rank)
            request.cancel()
            words = told(request.wait)
            assert words["error"] == "AbortedError" and told(request.wait)["sentence"] == words["sentence"]
            assert request.done and told(request.test)["error"] == "AbortedError"
            if c.rank == 1:
                c.store.set("no call of mine goes on", b"")
            else:
                c.store.get("no call of mine goes on")
                started = w.iallreduce(bytearray(8))
                started.cancel()
                say(**told(started.wait))
                c.store.set("cancelled", b"")
            c.store.get("cancelled")  # before that the other's barrier would be a mismatch
            say(again=told(w.barrier))
            c.recover(60)
            w.barrier()
    """
    first, second = run(lines)
    assert first["error"] == first["again"]["error"] == second["again"]["error"] == "AbortedError"
    assert second["again"]["rank"] == 0 and second["again"]["node_id"] == "0"


def test_an_error_that_is_raised_again_has_the_traceback_of_its_last_time():
    lines = """
        import traceback
        with muster.init(environment=False) as c:
            request = c.world.irecv(bytearray(1), source=0)
            request.cancel()
            depths = []
            for _ in range(3):
                try:
                    request.wait()
                except muster.AbortedError as error:
                    depths.append(len(traceback.extract_tb(error.__traceback__)))
            assert depths[0] == depths[2], depths
            for wait in (muster.wait_all, muster.wait_any):
                try:
                    wait([request, None])
                    raise AssertionError("has not failed")
                except TypeError as error:
                    assert "NoneType" in str(error)
            say(ended=True)
    """
    assert all(words["ended"] for words in run(lines, workers=1))


def test_many_requests_at_once_end_in_any_order():
    lines = """
        import numpy as np
        with muster.init() as c:
            w = c.world
            boxes = [np.zeros(1000) for _ in range(50)]
            gets = [w.irecv(box, source=1 - c.rank, tag=tag) for tag, box in enumerate(boxes)]
            puts = [w.isend(np.full(1000, float(tag + c.rank)), 1 - c.rank, tag) for tag in reversed(range(50))]
            sums = [w.iallreduce(np.ones(3)) for _ in range(10)]
            for request in [*reversed(sums), *puts, *gets]:
                request.wait(60)
            assert all((box == tag + 1 - c.rank).all() for tag, box in enumerate(boxes))
            say(ended=True)
    """
    assert all(words["ended"] for words in run(lines))


def test_a_request_is_of_one_thread_at_a_time():
    lines = """
        import threading
        with muster.init() as c:
            request = c.world.irecv(bytearray(4), source=1 - c.rank)
            thread = threading.Thread(target=request.wait)
            thread.start()
            while not request._turn.locked():
                time.sleep(0.001)
            for call in (request.wait, request.test, request.cancel):
                words = told(call)
                assert words["error"] == "StateError" and "another thread" in words["sentence"]
            c.world.barrier()  # a rank that has not yet looked needs its request to be without a message
            c.world.send(b"1234", 1 - c.rank)
            thread.join()
            assert request.wait().count == 4
            say(ended=True)
    """
    assert all(words["ended"] for words in run(lines))


def test_a_receive_from_any_source_ends_when_the_only_other_member_has_left():
    lines = """
        c = muster.init()
        c.world.barrier()
        if c.rank == 1:
            c.finalize()
        else:
            say(**told(c.world.recv, bytearray(1)))
            say(again=told(c.world.recv, bytearray(1))["error"])
            c.finalize()
    """
    words = run(lines)[0]
    assert words["error"] == words["again"] == "PeerLeftError", words


def test_a_call_that_fails_alone_tells_no_cause_of_another():
    lines = """
        with muster.init() as c:
            c.world.set_timeout(0.2)
            of_message = told(c.world.recv, bytearray(1), source=1 - c.rank)
            assert of_message["status"] == c.failure().status.name == "TIMEOUT"
            say(**told(c.store.get, "nobody sets it", 0.1))
            c.world.set_timeout(muster.DEFAULT)
            c.world.barrier()
    """
    for words in run(lines):
        assert (words["status"], words["rank"]) == ("TIMEOUT", None), words
        assert "nobody sets it" in words["sentence"]


def test_any_and_all_of_several_are_waited_for():
    lines = """
        import numpy as np
        with muster.init() as c:
            w, other = c.world, 1 - c.rank
            never = w.irecv(bytearray(1), tag=9)
            try:
                muster.wait_any([never, never], 0.02)
                raise AssertionError("has not waited in vain")
            except TimeoutError:
                pass
            total = w.iallreduce(np.ones(2))
            assert muster.wait_any([never, total], 60) == 1 and total.wait().tolist() == [2, 2]
            assert muster.wait_any(one for one in (never, total)) == 1  # it has ended before
            early, late = w.ibarrier(), w.ibarrier()
            late.wait()
            assert muster.wait_any([never, early, late]) == 1  # the first, though nobody has asked for it yet
            boxes = [bytearray(1), bytearray(2)]
            requests = [w.irecv(boxes[0], other, 1), w.irecv(boxes[1], other, 2), w.isend(b"a", other, 1), w.isend(b"bc", other, 2)]
            received = muster.wait_all(iter([*requests, total]), 60)
            assert [each.count for each in received[:2]] == [1, 2] and boxes == [b"a", b"bc"] and received[4] is total.wait()
            try:
                muster.wait_all([total, never], 0.02)
                raise AssertionError("has not waited in vain")
            except TimeoutError:
                pass
            never.cancel()
            assert told(muster.wait_all, [never, total])["error"] == "AbortedError"
            assert muster.wait_all([]) == [] and told(muster.wait_any, [])["error"] == "InvalidError"
            w.barrier()  # what waits for any source ends when the last other has left
            say(ended=True)
    """
    assert all(words["ended"] for words in run(lines))


def test_an_error_of_the_wait_for_all_itself_is_raised_while_one_goes_on():
    lines = """
        from muster._library import LIBRARY
        with muster.init() as c:
            ended, never = c.world.ibarrier(), c.world.irecv(bytearray(1), source=0)
            ended.wait()
            there = LIBRARY.muster_request_wait_all
            LIBRARY.muster_request_wait_all = lambda *words: muster.Status.MEMORY
            say(error=told(muster.wait_all, [ended, never])["error"])
            c.world.send(b"1", 0)
            never.wait()
            say(results=len(muster.wait_all([ended, never])))
            LIBRARY.muster_request_wait_all = there
            never = c.world.irecv(bytearray(1), source=0)
            never.cancel()
            say(cancelled=told(muster.wait_all, [ended, never])["error"])
    """
    assert run(lines, workers=1) == [{"error": "OutOfMemoryError", "results": 2, "cancelled": "AbortedError"}]


def test_requests_are_awaited_while_other_coroutines_go_on():
    lines = """
        import asyncio, numpy as np
        async def main(c):
            w = c.world
            ticks = 0
            async def tick():
                nonlocal ticks
                while True:
                    ticks += 1
                    await asyncio.sleep(0.001)
            ticking = asyncio.create_task(tick())
            box = bytearray(5)
            waiting = w.irecv(box, source=1 - c.rank, tag=1)
            first, second = asyncio.create_task(awaited(waiting)), asyncio.create_task(awaited(waiting))
            given_up = asyncio.create_task(awaited(w.irecv(bytearray(1), tag=2)))
            while ticks < 20:
                await asyncio.sleep(0)
            assert not first.done()
            given_up.cancel()
            out = await w.iallreduce(np.full(3, c.rank + 1.0))
            assert out.tolist() == [3.0] * 3
            await w.isend(b"hello", 1 - c.rank, tag=1)
            assert await first == await second == muster.Received(1 - c.rank, 1, 5, "uint8") and box == b"hello"
            assert (await asyncio.gather(*(w.iallgather(np.array([c.rank])) for _ in range(20))))[19].tolist() == [[0], [1]]
            cancelled = w.irecv(bytearray(1), tag=3)
            cancelled.cancel()
            try:
                await cancelled
                raise AssertionError("cancelled")
            except muster.AbortedError:
                pass
            ticking.cancel()
            await w.ibarrier()
        async def awaited(request):
            return await request
        with muster.init() as c:
            asyncio.run(main(c))
            say(ended=True)
    """
    assert all(words["ended"] for words in run(lines))


def test_a_call_that_fails_once_the_next_epoch_has_begun_ends_nothing_of_it(tmp_path):
    """A thread is in a function of its own while the ranks recover. The library waits for no such function."""
    lines = """
        import os, pathlib, threading, time
        c = muster.init()
        w, goes_on, heard, entered = c.world, threading.Event(), [], pathlib.Path(os.environ["ENTERED"])
        def add(lower, inout, dtype):
            entered.touch()
            goes_on.wait()
        def reduce():
            try:
                w.allreduce(bytearray(8), op=c.operation(add))
            except muster.MusterError as error:
                heard.append(error.status.name)
        thread = threading.Thread(target=reduce)
        thread.start()
        while not entered.exists():
            time.sleep(0.01)  # asks again: the function may call nothing of the library that would tell the other ranks
        c.recover(60)
        w.barrier()
        goes_on.set()
        thread.join()
        w.barrier()
        say(heard=heard, epoch=c.epoch)
        c.finalize()
    """
    env = {"MS_ENABLE_RECOVERY": 1, "MS_RECOVERY_PATH": tmp_path / "recovery", "ENTERED": tmp_path / "entered"}
    with Cluster(packaged(lines), workers=3, env=env) as cluster:
        words = [said(worker) for worker in cluster.succeed(timeout=90)]
    assert {word["epoch"] for word in words} == {2} and all(word["heard"] == ["REVOKED"] for word in words), words
