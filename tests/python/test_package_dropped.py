"""What a program drops: requests that go on, groups and operations, in the middle of anything."""

import pytest

from cluster import Cluster, Process
from nodes import said
from packaged import packaged

IN_A_CYCLE = """
        import gc, weakref, numpy as np
        gc.disable()
        def ask(request):
            try:
                request.wait(0.01)
            except muster.TimeoutError as late:
                reason = late  # which refers to this frame, and this frame to it
"""


@pytest.mark.parametrize("data", ["bytes(b'A' * SIZE)", "np.frombuffer(b'A' * SIZE, np.uint8)", "bytearray(b'A' * SIZE)"])
def test_a_send_that_is_dropped_in_a_cycle_keeps_what_it_sends(data):
    lines = IN_A_CYCLE + f"""
        SIZE = 1 << 20
        class Watched(np.ndarray):
            pass
        with muster.init() as c:
            if c.rank == 0:
                ask(c.world.isend({data}, 1, tag=5))
                watched = np.ones(SIZE).view(Watched)
                watched.flags.writeable = False
                gone = weakref.ref(watched)
                ask(c.world.isend(watched, 1, tag=6))
                del watched
                gc.collect()
                say(held=gone() is not None)
                others = [b"Z" * SIZE for _ in range(50)]
                c.world.barrier()
                c.world.barrier()
            else:
                c.world.barrier()
                box, ones = bytearray(SIZE), np.zeros(SIZE)
                c.world.recv(box, 0, 5)
                c.world.recv(ones, 0, 6)
                c.world.barrier()
                say(well=box == b"A" * SIZE and bool((ones == 1).all()))
    """
    with Cluster(packaged(lines), workers=2) as cluster:
        assert [said(worker) for worker in cluster.succeed(timeout=60)] == [{"held": True}, {"well": True}]


def test_a_request_and_its_group_that_are_dropped_in_a_cycle_go_on():
    lines = IN_A_CYCLE + """
        with muster.init() as c:
            made = [c.world.split(0)]
            if c.rank == 0:
                box = bytearray(1)
                def ask_in_group():
                    group = made.pop()
                    ask(group.irecv(box, 1))
                ask_in_group()
                gc.collect()
                c.world.barrier()
                deadline = time.monotonic() + 30
                while not box[0] and time.monotonic() < deadline:
                    time.sleep(0.001)  # nobody waits for the request any more
                say(box=list(box))
            else:
                c.world.barrier()
                made[0].send(b"1", 0)
            c.world.barrier()
    """
    with Cluster(packaged(lines), workers=2) as cluster:
        assert said(cluster.succeed(timeout=60)[0]) == {"box": [49]}


def test_a_request_whose_coroutine_ends_it_as_it_is_dropped_is_freed_once():
    lines = """
        import gc
        from muster._library import LIBRARY
        gc.disable()
        freed, free = [], LIBRARY.muster_request_free
        def counted(handle):
            freed.append(getattr(handle, "value", handle))
            free(handle)
        LIBRARY.muster_request_free = counted
        with muster.init() as c:
            def generator():
                itself = yield
                request = c.world.irecv(bytearray(1), source=0)
                try:
                    yield
                finally:  # called by the collector
                    c.world.send(b"1", 0)
                    say(count=request.wait().count)
            def drop():
                one = generator()
                next(one)
                one.send(one)
            drop()
            gc.collect()
            c.world.ibarrier().wait()
            say(freed=len([handle for handle in freed if handle]))
    """
    with Process(packaged(lines)) as alone:
        assert alone.wait(timeout=60) == 0, alone.describe()
        assert said(alone) == {"count": 1, "freed": 2} and alone.stderr == "", alone.describe()


CALLS = {
    "a request": "w.iallreduce(array('d', [1.0])).wait()",
    "bytes": "w.allgather(b'abc')",
    "an object": "w.broadcast_object(1)",
    "objects": "w.allgather_object(1)",
    "a request that goes on": "w.irecv(bytearray(1), source=0).cancel()",
    "a request that fails": "told(w.isend, b'', 7)",
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_no_call_leaves_python_s_code_to_be_run_where_a_handler_s_exception_is_lost(call):
    lines = f"""
        from array import array
        with muster.init() as c:
            w, finalizers = c.world, []
            def entered(frame, event, _):
                if event == "call" and frame.f_code.co_name == "__del__":
                    finalizers.append(frame.f_code.co_filename)
            sys.setprofile(entered)
            for _ in range(3):
                {call}
            sys.setprofile(None)
            say(finalizers=finalizers)
    """
    with Process(packaged(lines)) as alone:
        assert alone.wait(timeout=60) == 0, alone.describe()
        assert said(alone) == {"finalizers": []}


HELD = """
    import threading
    from muster import _life
    from muster._callbacks import called_by_the_library
    with muster.init() as c:
        group = c.world.split(0)
        if c.rank == 0:
            owned = group._owner._owned
            {dropped}
        c.world.barrier()
        say(left=len(owned)) if c.rank == 0 else say(error=told(group.barrier)["error"])
"""


def test_a_group_that_is_dropped_while_the_library_calls_is_freed_by_the_next_call():
    dropped = """
            with called_by_the_library():
                del group
                c.failed_ranks()  # a function or handler may ask the library, and frees nothing there
            assert len(owned) == 1
    """
    with Cluster(packaged(HELD.format(dropped=dropped)), workers=2, env={"MUSTER_TIMEOUT": 30}) as cluster:
        assert [said(worker) for worker in cluster.succeed(timeout=60)] == [{"left": 0}, {"error": "PeerLeftError"}]


@pytest.mark.parametrize("function", ["os.getpid", "_life.is_called_by_the_library", "_life.LIBRARY.muster_group_free"])
def test_ctrl_c_as_a_dropped_group_is_freed_is_raised_by_the_next_call(function):
    owner, name = function.rsplit(".", 1)
    dropped = f"""
            there, interrupts = {function}, [KeyboardInterrupt]
            def interrupted(*words):
                answer = there(*words)
                for kind in interrupts[:]:
                    interrupts.clear()
                    raise kind  # as Python runs handlers right behind a call
                return answer
            setattr({owner}, "{name}", interrupted)
            group._owner._free = _life.LIBRARY.muster_group_free
            del group
            assert not interrupts
            try:
                c.world.rank
                raise AssertionError("was lost")
            except KeyboardInterrupt:
                setattr({owner}, "{name}", there)
    """
    with Cluster(packaged(HELD.format(dropped=dropped)), workers=2, env={"MUSTER_TIMEOUT": 30}) as cluster:
        assert [said(worker) for worker in cluster.succeed(timeout=60)] == [{"left": 0}, {"error": "PeerLeftError"}]
        assert cluster.workers[0].stderr == ""


def test_a_cluster_that_was_left_is_freed_without_the_collector():
    lines = """
        import gc, weakref
        from array import array
        gc.disable()
        def descriptors():
            return len(os.listdir("/proc/self/fd"))
        def use():
            with muster.init(environment=False) as c:
                operation = c.operation(lambda lower, inout, dtype: None)
                c.world.allreduce(array("d", [1.0]), op=operation)
                c.world.irecv(bytearray(1), source=0)
                return weakref.ref(operation), weakref.ref(c.world), descriptors()
        use()
        before = descriptors()
        *gone, while_open = use()
        say(gone=[ref() is None for ref in gone], closed=descriptors() == before < while_open)
    """
    with Process(packaged(lines)) as alone:
        assert alone.wait(timeout=60) == 0, alone.describe()
        assert said(alone) == {"gone": [True, True], "closed": True}
