"""How a process of Python leaves its cluster, and what its children may not do."""

import json
import signal
import sys

import pytest

from cluster import Cluster, Process
from nodes import said
from packaged import packaged
from test_status import until_told

ABORTED = """
with muster.init() as c:
    if c.rank == 1:
        {line}
    say(**told(c.world.barrier))
"""


@pytest.mark.parametrize("line, reason, code", [
    ("raise ValueError('the loss is NaN')", "ValueError: the loss is NaN", 1),
    ("sys.exit(7)", "SystemExit: 7", 7),
    ("os.kill(os.getpid(), 2)", "KeyboardInterrupt", -signal.SIGINT),
    ("raise type('Wordless', (Exception,), {'__str__': lambda _: None})", "Wordless", 1),
    ("c.abort(ValueError('the loss is NaN')); os._exit(3)", "ValueError: the loss is NaN", 3),
])
def test_an_exception_that_leaves_the_block_is_everybodys_reason(line, reason, code):
    with Cluster(packaged(ABORTED.format(line=line)), workers=3) as cluster:
        cluster.wait(timeout=60)
        assert cluster.workers[1].returncode == code
        for worker in (cluster.workers[0], cluster.workers[2]):
            words = said(worker)
            assert (words["error"], words["status"], words["rank"], words["node_id"]) == ("AbortedError", "ABORTED", 1, "1")
            assert reason in words["sentence"] and reason in words["cause"]
        assert cluster.scheduler.returncode == 1
        assert "AbortedError" in cluster.scheduler.stderr and reason in cluster.scheduler.stderr


def test_a_lost_rank_is_named_by_the_exception_and_survives_pickling():
    lines = """
        import pickle, signal
        with muster.init() as c:
            if c.rank == 1:
                say(pid=os.getpid())
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                c.world.barrier()
            except muster.PeerLostError as error:
                again = pickle.loads(pickle.dumps(error))
                for each in (error, again):
                    assert (each.status, each.rank, each.node_id) == (muster.Status.PEER_LOST, 1, "1") and isinstance(each, ConnectionError)
                    assert each.failure == c.failure() == c.world.failure()
                say(pid=again.failure.pid, sentence=str(again), cause=again.cause, status=again.failure.status.name, lost=c.failed_ranks())
    """
    with Cluster(packaged(lines), workers=2) as cluster:
        cluster.wait(timeout=60)
        words, pid = said(cluster.workers[0]), said(cluster.workers[1])["pid"]
        assert words["pid"] == pid and f"pid {pid}" in words["sentence"] and words["cause"] in words["sentence"]
        assert words["status"] == "PEER_LOST" and words["lost"] == [1]


def test_a_block_that_ends_well_leaves_in_order_and_so_does_sys_exit_0():
    lines = """
        with muster.init() as c:
            say(rank=c.rank)
            c.world.barrier()
            if c.rank == 0:
                sys.exit(0)
        say(**told(c.world.barrier))
        c.finalize()
    """
    with Cluster(packaged(lines), workers=2) as cluster:
        cluster.succeed(timeout=60)
        assert said(cluster.workers[0]) == {"rank": 0}
        assert said(cluster.workers[1])["error"] == "StateError"
        assert cluster.scheduler.stdout == "" and cluster.scheduler.stderr == ""


def test_to_free_a_group_of_the_clusters_own_does_nothing():
    lines = """
        with muster.init() as c:
            for group in (c.world, c.servers, c.universe):
                group.free()
            with c.world:
                c.world.barrier()
            made = c.world.split(0)
            for _ in range(2):
                made.free()
            say(ranks=c.world.allgather_object(c.rank), size=c.universe.size, made=told(made.barrier))
    """
    with Cluster(packaged(lines), workers=2) as cluster:
        for worker in cluster.succeed(timeout=60):
            words = said(worker)
            assert words["ranks"] == [0, 1] and words["size"] == 2
            assert "has been freed" in words["made"]["sentence"]


def test_a_rank_that_never_leaves_has_left_when_its_interpreter_ends():
    lines = """
        def joined():
            return muster.init().world
        w = joined()
        w.barrier()
        if w.rank == 0:
            sys.exit(0)
        words = told(w.barrier)
        say(**words)
        muster.release()
    """
    with Cluster(packaged(lines), workers=2) as cluster:
        cluster.succeed(timeout=60)
        assert said(cluster.workers[1])["error"] == "PeerLeftError"


def test_an_exception_that_ends_the_program_is_everybodys_reason():
    lines = """
        c = muster.init()
        if c.rank == 0:
            raise RuntimeError("no with here")
        say(**told(c.world.barrier))
    """
    with Cluster(packaged(lines), workers=2) as cluster:
        cluster.wait(timeout=60)
        assert cluster.workers[0].returncode == 1 and cluster.workers[1].returncode == 0
        assert said(cluster.workers[1])["error"] == "AbortedError"
        assert "RuntimeError: no with here" in said(cluster.workers[1])["sentence"]


def test_an_exception_that_a_console_in_the_program_shows_ends_nothing():
    lines = """
        import code
        c = muster.init()
        def shown(source):
            code.InteractiveInterpreter().runsource(source)
            assert sys.last_value is not None
        if c.rank == 1:
            shown("1/0")
        elif c.rank == 2:
            shown("1 +* 2")
        c.world.barrier()
        if c.rank == 0:
            say(**told(c.world.barrier))
    """
    with Cluster(packaged(lines), workers=3) as cluster:
        cluster.succeed(timeout=60)
        assert said(cluster.workers[0])["error"] == "PeerLeftError"


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python ends a child of multiprocessing after the exception is handled")
def test_a_child_of_multiprocessing_knows_the_exception_that_ends_it_and_none_of_its_parents():
    lines = """
        import multiprocessing
        from multiprocessing import util
        from muster import _life
        context = multiprocessing.get_context("fork")
        def fail():
            raise ValueError("mine")
        def fail_as_spawned_by_torch():
            try:
                fail()
            except ValueError:
                sys.exit(1)
        def child(queue, end):
            util.Finalize(None, lambda: queue.put(repr(_life._unhandled())), exitpriority=0)
            end()
        def told_by(end):
            queue = context.SimpleQueue()
            try:
                raise OSError("the parent's")
            except OSError:
                process = context.Process(target=child, args=[queue, end])
                process.start()
            heard = queue.get()
            process.join()
            return heard
        say(well=[told_by(end) for end in (int, sys.exit, lambda: sys.exit(0))],
            ill=[told_by(end) for end in (fail, fail_as_spawned_by_torch, lambda: sys.exit(1), lambda: sys.exit(3))])
    """
    with Process(packaged(lines)) as process:
        assert process.wait(timeout=60) == 0, process.describe()
        assert said(process)["well"] == ["None"] * 3
        assert said(process)["ill"] == ["ValueError('mine')", "ValueError('mine')", "SystemExit(1)", "SystemExit(3)"]


CHILD = """
    import gc, multiprocessing, traceback
    c = muster.init()
    w = c.world
    group = w.split(0)
    box, operation = bytearray(4), c.operation(lambda lower, inout, dtype: None)
    request = w.irecv(box, tag=9) if c.rank == 0 else None
    calls = [lambda: c.rank, lambda: c.size, lambda: c.node_id, lambda: w.rank, lambda: group.size, w.barrier, w.ibarrier, c.failed_ranks,
             lambda: w.allreduce(bytearray(8)), lambda: group.allreduce(bytearray(8), op=operation), lambda: c.store.get("key"),
             lambda: w.send(b"", 0), c.failure, w.failure, c.recover, lambda: c.abort("no"), c.finalize, muster.get_rank]
    def child():
        errors = []
        for call in calls + ([request.wait, request.test, request.cancel, lambda: request.done] if request else []):
            errors.append(told(call)["error"])
        globals().update(c=None, w=None, group=None, request=None, operation=None)
        calls.clear()
        gc.collect()
        return errors
"""


@pytest.mark.parametrize("fork", [
    """
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, " ".join(child()).encode())
        sys.exit(0)
    os.close(writer)
    errors = os.fdopen(reader).read().split()
    assert os.wait()[1] == 0
    """,
    """
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=lambda: queue.put(child()))
    process.start()
    errors = queue.get()
    process.join()
    assert process.exitcode == 0
    """,
])
def test_a_forked_child_can_call_nothing_and_touches_nothing(fork):
    lines = CHILD + fork + """
    w.barrier()
    if request is None:
        w.send(b"four", 0, tag=9)
    else:
        assert request.wait().count == 4 and box == b"four"
    assert group.allgather_object(c.rank) == [0, 1]
    say(errors=errors)
    c.finalize()
    """
    with Cluster(packaged(lines), workers=2) as cluster:
        for worker in cluster.succeed(timeout=60):
            errors = said(worker)["errors"]
            assert len(errors) >= 18
            assert set(errors[:17]) == {"ForkedError"} and errors[17] == "StateError" and set(errors[18:]) <= {"ForkedError"}


def test_a_child_that_is_forked_while_other_threads_have_the_package_s_locks_waits_for_none_of_them():
    lines = """
        import threading
        from muster import _log
        with muster.init() as c:
            request, group = c.world.irecv(bytearray(1), source=0), c.world.split(0)
            thread = threading.Thread(target=request.wait)
            thread.start()
            while not request._turn.locked():
                time.sleep(0.001)
            has_them, has_forked = threading.Event(), threading.Event()
            def hold():
                with _log._setting:
                    has_them.set()
                    has_forked.wait(60)
            holder = threading.Thread(target=hold)
            holder.start()
            has_them.wait(60)
            if os.fork() == 0:
                try:
                    muster.set_log(None)
                    errors = [told(call)["error"] for call in (lambda: request.done, request.wait, group.barrier)]
                    group.free()
                    os._exit(errors != ["ForkedError"] * 3)
                finally:
                    os._exit(2)
            status = os.wait()[1]
            has_forked.set()
            holder.join()
            c.world.send(b"1", 0)
            thread.join()
            say(status=status, again=group.allgather_object(c.rank))
    """
    with Process(packaged(lines)) as alone:
        assert alone.wait(timeout=60) == 0, alone.describe()
        assert said(alone) == {"status": 0, "again": [0]}


FREED = """
    import threading
    from muster._library import LIBRARY
    asks, frees, says = LIBRARY.muster_group_failure, LIBRARY.muster_group_free, LIBRARY.muster_last_error
    events, freer = [], []

    def freed(handle):
        events.append("free")
        frees(handle)

    def free_elsewhere():
        thread = threading.Thread(target=group.free)
        freer.append(thread)
        thread.start()
        thread.join(0.2)

    def on_sentence():
        sentence = says()
        {sentence}
        return sentence

    def asked(handle, *words):
        events.append("ask")
        {question}
        status = asks(handle, *words)
        events.append("asked")
        return status

    LIBRARY.muster_group_free = freed
    with muster.init() as c:
        group = c.world.split(0)
        request = group.irecv(bytearray(1), source=0)
        request.cancel()
        LIBRARY.muster_last_error, LIBRARY.muster_group_failure = on_sentence, asked
        error = told({call})["error"]
        LIBRARY.muster_last_error, LIBRARY.muster_group_failure = says, asks
        for thread in freer:
            thread.join()
        group.free()
        say(error=error, events=events, again=told(group.barrier)["sentence"])
"""


@pytest.mark.parametrize("call, error", [("group.recv, bytearray(1), 9", "InvalidError"), ("request.wait", "AbortedError")])
@pytest.mark.parametrize("sentence, question, events", [
    ("freer or free_elsewhere()", "pass", ["free"]),
    ("pass", "free_elsewhere()", ["ask", "asked", "free"]),
    ("pass", "group.free()", ["ask", "asked", "free"]),  # by a signal's handler, or a finalizer, on this very thread
], ids=["before it is asked", "while it is asked", "on the thread that asks"])
def test_a_group_that_is_freed_while_a_call_on_it_fails_is_not_asked_any_more(call, error, sentence, question, events):
    with Process(packaged(FREED.format(call=call, sentence=sentence, question=question))) as alone:
        assert alone.wait(timeout=60) == 0, alone.describe()
        assert said(alone) == {"error": error, "events": events, "again": "this group has been freed"}


def test_a_spawned_child_does_not_claim_the_rank_of_the_process_whose_environment_it_has():
    lines = """
        import multiprocessing
        spawn = multiprocessing.get_context("spawn")
        def child(*arguments, **named):
            process = spawn.Process(target=muster.init, args=arguments, kwargs=named)
            process.start()
            process.join()
            return process.exitcode
        with muster.init(node_id=None) as c:  # None leaves a setting out
            with muster.init(environment=False):  # leaves the mark of the other alone
                pass
            say(pid=os.getpid(), plain=child(), alone=child(environment=False))
            with muster.Scheduler(worker_num=1) as scheduler:
                host, port = scheduler.address.split(":")
                say(other=child(role="worker", sched_host=host, sched_port=port, worker_num=1, node_id="a child"))
                scheduler.wait(30)
        say(claim=os.environ.get("MUSTER_JOINED_BY"))
    """
    with Cluster(packaged(lines), workers=1) as cluster:
        worker, = cluster.succeed(timeout=120)
        words = said(worker)
        assert (words["plain"], words["alone"], words["other"], words["claim"]) == (1, 0, 0, None)
        assert f"ConfigError: process {words['pid']}" in worker.stderr and "node_id" in worker.stderr


END_WITH_WORK = """
    import threading
    c = muster.init()
    w = c.world
    muster.set_log(lambda level, speaker, line: None, "debug")
    box = bytearray(4)
    requests = [w.irecv(box, source=0, tag=1) for _ in range(3)]
    w.irecv(bytearray(4), source=0, tag=2)
    w.ibarrier() if c.rank == 1 else None
    began = threading.Event()
    def wait():
        began.set()
        try:
            {call}
        except muster.MusterError:
            pass
    for _ in range(3):
        threading.Thread(target=wait, daemon=True).start()
    began.wait(30)
    say(ended=True)
"""


@pytest.mark.parametrize("call", ["w.recv(bytearray(4), source=0, tag=3)", "requests.pop().wait()", "c.store.get('nobody sets it')",
                                  "c.world.split(c.rank) if c.rank else None"])
def test_the_end_of_the_interpreter_with_work_pending_neither_hangs_nor_crashes(call):
    env = {"MUSTER_FINALIZE_TIMEOUT": 5}
    with Cluster(packaged(END_WITH_WORK.format(call=call)), workers=2, env=env) as cluster:
        cluster.wait(timeout=60)
        assert [worker.returncode for worker in cluster.workers] == [0, 0]
        assert all("Fatal" not in worker.stderr and "Traceback" not in worker.stderr for worker in cluster.workers)


def test_the_end_of_the_interpreter_while_a_function_of_python_reduces():
    lines = """
        import threading
        from array import array
        c = muster.init()
        reduces = threading.Event()
        def slowly(lower, inout, dtype):
            reduces.set()
            time.sleep(2)  # longer than leaving may take
            say(returned=True)
        def work():
            try:
                c.world.allreduce(array("f", [1.0]), op=operation)
            except muster.MusterError:
                reduces.set()
        operation = c.operation(slowly)
        threading.Thread(target=work, daemon=True).start()
        assert reduces.wait(60)
    """
    with Cluster(packaged(lines), workers=2, env={"MUSTER_FINALIZE_TIMEOUT": 0.5}) as cluster:
        cluster.wait(timeout=60)
        assert [worker.returncode for worker in cluster.workers] == [0, 0]
        assert [worker.stderr for worker in cluster.workers] == ["", ""]
        assert any("returned" in said(worker) for worker in cluster.workers)


def test_a_request_that_is_forgotten_keeps_its_buffer_until_it_has_ended():
    lines = """
        import gc, weakref, numpy as np
        with muster.init() as c:
            w = c.world
            if c.rank == 0:
                box = np.zeros(100_000)
                gone = weakref.ref(box)
                w.irecv(box, source=1)
                del box
                gc.collect()
                w.barrier()
                w.recv(bytearray(1), source=1, tag=1)
                held = gone()
                say(held=held is not None, last=float(held[-1]))
                del held
                w.irecv(bytearray(1), tag=4).cancel()
                gc.collect()
                say(freed=gone() is None)
            else:
                w.barrier()
                w.send(np.full(100_000, 3.0), 0)
                w.send(b"1", 0, tag=1)
    """
    with Cluster(packaged(lines), workers=2) as cluster:
        assert said(cluster.succeed(timeout=60)[0]) == {"held": True, "last": 3.0, "freed": True}


def test_requests_that_go_on_do_not_hide_one_that_has_ended():
    lines = """
        import gc, weakref, numpy as np
        with muster.init() as c:
            w = c.world
            for _ in range(100):
                w.irecv(bytearray(1), source=0, tag=1)
            box = np.zeros(1)
            gone = weakref.ref(box)
            w.irecv(box, source=0, tag=2)
            del box
            w.send(np.ones(1), 0, tag=2)
            gc.collect()
            held = gone() is not None
            for _ in range(8):
                w.irecv(bytearray(1), source=0, tag=1)
            say(held=held, freed=gone() is None)
    """
    with Process(packaged(lines)) as alone:
        assert alone.wait(timeout=60) == 0, alone.describe()
        assert said(alone) == {"held": True, "freed": True}


def test_alone_without_any_setting():
    lines = "with muster.init() as c: say(size=c.size, rank=muster.get_rank(), all=c.world.allgather_object(1))"
    with Process(packaged(lines)) as alone:
        assert alone.wait(timeout=60) == 0, alone.describe()
        assert said(alone) == {"size": 1, "rank": 0, "all": [1]}


KINDS = ("Cluster", "Group", "Store", "Request", "Operation", "Scheduler")


def test_what_belongs_to_its_process_is_neither_copied_nor_pickled():
    lines = """
        import copy, pickle
        cluster = muster.init()
        receive = cluster.world.irecv(bytearray(1), source=0, tag=1)
        operation = cluster.operation(lambda lower, inout, dtype: None)
        scheduler = muster.Scheduler(worker_num=1)
        for one in (cluster, cluster.world, cluster.store, receive, operation, scheduler):
            for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                try:
                    copied(one)
                except TypeError as error:
                    say(kind=type(one).__name__, error="TypeError", sentence=str(error))
        say(**told(receive.wait, -1.0))
    """
    with Process(packaged(lines)) as process:
        assert process.wait(timeout=30) == 0, process.describe()
        assert process.stderr == "", process.describe()
        words = [json.loads(line) for line in process.stdout.splitlines()]
        refused = [(one["kind"], one["error"]) for one in words[:-1]]
        assert refused == [(kind, "TypeError") for kind in KINDS for _ in range(3)]
        assert "belongs to its process: it can be neither copied nor pickled" in words[0]["sentence"]
        assert words[-1]["error"] == "InvalidError" and "-1.0 seconds" in words[-1]["sentence"]


def test_the_end_of_the_interpreter_while_a_thread_waits_for_the_others(tmp_path):
    lines = """
        import threading
        def wait():
            say(waits=True)
            told(muster.init)
        threading.Thread(target=wait, daemon=True).start()
        while not os.path.exists(os.environ["END"]):
            time.sleep(0.01)
    """
    with Cluster(packaged(lines), workers=2, started=0, scheduler=packaged("muster.init()")) as cluster:
        worker = cluster.start_worker({"END": tmp_path / "end"})
        until_told(cluster.port, lambda answer: answer["nodes"], "one waits in init")
        (tmp_path / "end").touch()
        assert worker.wait(timeout=60) == 0 and worker.stderr == "", worker.describe()


def test_what_is_found_while_the_library_calls_is_freed_as_soon_as_it_does_not():
    lines = """
        import concurrent.futures
        from array import array
        with muster.init() as c:
            dropped = []
            def make():
                dropped.extend((c.world.split(0), c.world.irecv(bytearray(1), tag=7)))
                return dropped[0]._owner._owned
            # In a thread that has ended: free-threaded Python leaves an object's end to the thread that made it, while that lives.
            with concurrent.futures.ThreadPoolExecutor() as maker:
                owned = maker.submit(make).result()
            was = []
            def add(lower, inout, dtype):
                dropped.clear()  # as the garbage collector may, in the middle of anything
                was.append(len(owned))
            c.world.allreduce(array("f", [1.0] * 64), op=c.operation(add))
            say(was=was[:1], now=len(owned))
            c.world.barrier()
    """
    with Cluster(packaged(lines), workers=2) as cluster:
        found = [said(worker) for worker in cluster.succeed(timeout=60)]
        assert any(words["was"] for words in found)
        assert all((words["was"], words["now"]) == ([1], 0) for words in found if words["was"])
