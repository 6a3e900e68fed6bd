"""Every collective and message of the package gives what numpy gives, in both forms, on 4 ranks."""

import pytest

from cluster import Cluster
from nodes import said
from packaged import packaged

START = """
import numpy as np
def of(rank, count=12):
    return np.arange(count, dtype=np.float32) * (rank + 1) + rank
c = muster.init()
w, rank, size = c.world, c.rank, c.size
everyone = [of(each) for each in range(size)]
def both(name, *arguments, **named):
    waited = getattr(w, name)(*arguments, **named)
    started = getattr(w, "i" + name)(*arguments, **named).wait()
    assert (waited is None and started is None) or np.array_equal(waited, started), name
    return waited
def same(got, wanted):
    assert got.dtype == np.asarray(wanted).dtype and np.array_equal(got, wanted), (got, wanted)
"""
END = """
w.barrier(); w.ibarrier().wait()
say(ended=True)
c.finalize()
"""


def run(lines, workers=4, timeout=120):
    with Cluster(packaged(START + lines + END), workers=workers) as cluster:
        for worker in cluster.succeed(timeout):
            assert said(worker)["ended"]


def test_reductions():
    run("""
total = sum(everyone)
same(both("allreduce", of(rank), out=np.empty(12, np.float32)), total)
x = of(rank)
assert w.allreduce(x) is x
same(x, total)
same(w.iallreduce(of(rank), op="max").wait(), np.maximum.reduce(everyone))
same(w.allreduce(of(rank), op="avg"), total / 4)
got = both("reduce", of(rank), root=2, out=np.empty(12, np.float32))
same(got, total) if rank == 2 else None
assert rank == 2 or got is None
same(both("reduce_scatter", of(rank)), total[3 * rank:][:3])
same(both("reduce_scatter", of(rank).reshape(4, 3)), total[3 * rank:][:3])
counts = [0, 5, 6, 1]
same(both("reduce_scatterv", of(rank), counts), total[sum(counts[:rank]):][:counts[rank]])
""")


def test_exact_sums():
    run("""
import math
wide = [np.random.default_rng(each).standard_normal(500) * 10.0 ** np.random.default_rng(9 + each).integers(-300, 300, 500)
        for each in range(size)]
wanted = np.array([math.fsum(column) for column in zip(*wide)])
same(both("allreduce", wide[rank], out=np.empty(500), op="sum_exact"), wanted)
same(w.allreduce(wide[rank].copy(), op="sum_exact"), wanted)
got = both("reduce", wide[rank], root=1, out=np.empty(500), op="sum_exact")
same(got, wanted) if rank == 1 else None
same(both("reduce_scatter", wide[rank], op="sum_exact"), wanted[125 * rank:][:125])
same(both("reduce_scatterv", wide[rank], [100, 0, 399, 1], op="sum_exact"), wanted[[0, 100, 100, 499][rank]:][:[100, 0, 399, 1][rank]])
mine = {0: wide[0:1], 1: [], 2: wide[1:4], 3: []}[rank]
same(both("allreduce_addends", np.array(mine), np.empty(500)), wanted)
for wrong, said in [(lambda: w.allreduce(np.zeros(2, np.int32), op="sum_exact"), "float type"),
                    (lambda: w.allreduce_addends(np.zeros(5), np.zeros(2)), "a multiple of 2"),
                    (lambda: w.allreduce_addends(np.zeros(4, np.float32), np.zeros(2)), "both must be the same")]:
    try:
        wrong()
        raise AssertionError(said)
    except muster.InvalidError as error:
        assert said in str(error), error
""")


def test_gathers_and_scatters():
    run("""
x = of(rank).reshape(3, 4)
same(both("broadcast", of(rank), root=1), everyone[1])
same(both("allgather", x), np.stack(everyone).reshape(4, 3, 4))
got = both("gather", x, root=3)
assert got is None if rank != 3 else np.array_equal(got, np.stack(everyone).reshape(4, 3, 4))
everything = np.stack(everyone)
same(both("scatter", everything if rank == 1 else None, out=np.empty(12, np.float32), root=1), everyone[rank])
same(both("scatter", everything) if rank == 0 else both("scatter", out=np.empty(12, np.float32)), everyone[rank])
counts = [2, 0, 12, 7]
pieces = np.concatenate([of(each)[:counts[each]] for each in range(4)])
same(both("allgatherv", of(rank)[:counts[rank]], counts), pieces)
apart = np.full(40, -1, np.float32)
w.allgatherv(of(rank)[:counts[rank]], counts, apart, displs=[30, 0, 1, 20])
assert apart[0] == -1 and np.array_equal(apart[30:32], everyone[0][:2]) and np.array_equal(apart[1:13], everyone[2])
got = both("gatherv", of(rank)[:counts[rank]], counts if rank == 0 else None)
assert got is None if rank else np.array_equal(got, pieces)
out = np.empty(counts[rank], np.float32)
same(both("scatterv", out, *([pieces, counts] if rank == 0 else [])), of(rank)[:counts[rank]])
""")


def test_alltoall_and_messages():
    run("""
same(both("alltoall", of(rank).reshape(4, 3)), np.stack([each[3 * rank:][:3] for each in everyone]))
goes = [(rank + to) % 3 for to in range(4)]
comes = [(of_ + rank) % 3 for of_ in range(4)]
x = np.arange(sum(goes)) + 100 * rank
got = both("alltoallv", x, goes, comes)
at = [sum((each + to) % 3 for to in range(rank)) for each in range(4)]
same(got, np.concatenate([np.arange(at[each], at[each] + comes[each]) + 100 * each for each in range(4)]))
right, left = (rank + 1) % 4, (rank - 1) % 4
box = np.zeros(20, np.float32)
told = w.sendrecv(of(rank), right, box, left, tag=7)
assert told == muster.Received(source=left, tag=7, count=12, dtype="float32"), told
same(box[:12], everyone[left]); assert not box[12:].any()
told = w.isendrecv(of(rank), right, box, left, tag=8).wait()
assert told.tag == 8
sent = w.isend(b"hello", right, tag=3)
letters = bytearray(5)
request = w.irecv(letters, source=left, tag=3)
assert request.wait() == muster.Received(left, 3, 5, "uint8") and letters == b"hello"
sent.wait()
assert w.iprobe(tag=99) is None
w.send(b"probe", right, tag=11)
found = w.probe(tag=11)
assert (found.source, found.count) == (left, 5) and w.iprobe(source=left, tag=11) == found
w.recv(bytearray(found.count), found.source, found.tag)
w.send(b"", right); assert w.recv(bytearray(0)).count == 0
""")


def test_groups_and_what_is_known_of_members():
    run("""
assert [w.rank, w.size, w.world_rank(2), w.rank_of(2)] == [rank, 4, 2, 2]
odd = w.split(rank % 2, key=-rank)
assert odd.size == 2 and odd.rank == (0 if rank > 1 else 1)
assert list(odd.allgather(np.array([rank])).ravel()) == [rank % 2 + 2, rank % 2]
two = w.create([3, 0])
assert (two is None) == (rank in (1, 2))
if two is not None:
    with two:
        assert two.rank_of(3) == 0 and two.world_rank(1) == 0
    assert told(two.barrier)["error"] == "InvalidError"
assert w.split(None) is None
members = w.members()
assert [member.rank for member in members] == [0, 1, 2, 3] and members[rank].pid == os.getpid()
assert members[0].role == "worker" and members[0].state == "present"
assert told(w.member, 9)["error"] == "InvalidError"
for too_large in [(w.split, 2**31), (w.split, -2), (w.split, 0, 2**31), (w.send, b"x", 2**32 + 1), (w.send, b"x", 1, 2**32),
                  (w.broadcast, bytearray(1), 2**32), (w.gather, b"x", None, 2**32), (w.create, [2**32]), (c.create_group, [2**32, rank]), (c.store.add, "n", 2**63),
                  (w.member, 2**32), (w.world_rank, 2**32), (w.rank_of, 2**32), (c.abort, "too large", 2**32),
                  (w.allgatherv, b"x", [2**64 + 1] * 4)]:
    assert told(*too_large)["error"] == "InvalidError", too_large
assert w.failure() is None and c.failure() is None and c.failed_ranks() == []
assert [c.role, c.local_rank, c.local_size, c.epoch, c.restarts] == ["worker", rank, 4, 1, 0]
assert c.node_id == str(rank)
assert c.rank_table()["server_count"] == "1" and c.hccl_cm().worker_size == 4
assert c.servers.size == 0 and c.universe.size == 4
""")


def test_objects():
    run("""
mine = {"rank": rank, "list": list(range(rank))}
all_of = [{"rank": each, "list": list(range(each))} for each in range(4)]
assert w.allgather_object(mine) == all_of
assert w.gather_object(mine, root=1) == (all_of if rank == 1 else None)
assert w.broadcast_object(mine if rank == 2 else None, root=2) == all_of[2]
assert w.scatter_object(all_of if rank == 3 else None, root=3) == mine
assert w.alltoall_object([(rank, to) for to in range(4)]) == [(each, rank) for each in range(4)]
w.send_object(mine, (rank + 1) % 4, tag=5) if rank % 2 else None
assert rank % 2 or w.recv_object(tag=5) == all_of[(rank - 1) % 4]
""")


def test_an_object_that_was_not_sent_or_not_received_leaves_nothing_behind():
    run("""
assert told(w.send_object, bytes(100_000), rank)["error"] == "StateError"
w.send_object("to myself", rank)
assert w.recv_object(rank) == "to myself"
other = 1 - rank
if rank == 0:
    w.set_timeout(0.2)
    assert told(w.send_object, bytes(100_000), other)["error"] == "TimeoutError"
    w.set_timeout(None)
w.barrier()
w.send_object("after a time-out", other)
there = muster.Group.recv
def interrupted(*words):
    muster.Group.recv = there
    raise KeyboardInterrupt
muster.Group.recv = interrupted
try:
    w.recv_object(other)
    raise AssertionError("was not interrupted")
except KeyboardInterrupt:
    pass
assert w.recv_object(other) == "after a time-out"
w.send(np.ones(3), other)
w.send_object(bytes(100), other)
assert told(w.recv_object, other)["error"] == "MismatchError" and w.recv_object(other) == bytes(100)
""", workers=2)


def test_reductions_by_a_function_of_python():
    run("""
def multiply(lower, inout, dtype):
    np.multiply(np.frombuffer(lower, dtype), np.frombuffer(inout, dtype), out=np.frombuffer(inout, dtype))
times = c.operation(multiply)
same(w.allreduce(np.full(3, rank + 1.0), op=times), np.full(3, 24.0))
keep_lower = c.operation(lambda lower, inout, dtype: inout.__setitem__(slice(None), lower), commutative=False)
same(w.allreduce(np.full(3, rank), op=keep_lower), np.full(3, 0))
same(w.reduce_scatter(np.full(4, 2.0), op=times), np.array([16.0]))
assert told(w.iallreduce, np.zeros(3), op=times)["error"] == "InvalidError"
""")


def test_a_function_of_python_runs_on_no_thread_of_the_callers():
    run("""
import threading
ran = set()
def add(lower, inout, dtype):
    ran.add(threading.get_ident())
    np.add(np.frombuffer(lower, dtype), np.frombuffer(inout, dtype), out=np.frombuffer(inout, dtype))
plus = c.operation(add)
for count in range(1, 30):
    same(w.allreduce(np.full(count, rank + 1.0), op=plus), np.full(count, 10.0))
assert threading.get_ident() not in ran and (ran or rank != 0)
""")


def test_what_a_function_of_python_keeps_of_the_librarys_memory_cannot_be_read():
    run("""
import pickle
views, kept = [], []
def add(lower, inout, dtype):
    views.extend((lower, inout))
    np.add(np.frombuffer(lower, dtype), np.frombuffer(inout, dtype), out=np.frombuffer(inout, dtype))
def add_and_keep(lower, inout, dtype):
    add(lower, inout, dtype)
    kept.append(pickle.PickleBuffer(lower))  # a view that is in use cannot be ended
for function in (add, add_and_keep):
    same(w.allreduce(np.full(3, rank + 1.0), op=c.operation(function)), np.full(3, 10.0))
    ended = []
    for view in views:
        try:
            view.nbytes
        except ValueError:
            ended.append(view)
    assert len(ended) == len(views) - len(kept) and (views or rank != 0)
kept.clear()
""")


def test_the_error_of_a_receive_tells_of_the_message_that_did_not_fit():
    run("""
import pickle
right, left, message = (rank + 1) % 4, (rank - 1) % 4, np.arange(5, dtype=np.int16)
def blocking():
    w.send(message, right, tag=7)
    w.recv(np.zeros(4, np.int16), left)
def started():
    w.send(message, right, tag=7)
    w.irecv(np.zeros(4, np.int16), left).wait()
def of_another_type():
    w.sendrecv(message, right, np.zeros(5, np.uint16), left, tag=7)
for receive in (blocking, started, of_another_type):
    try:
        receive()
        raise AssertionError("has not failed")
    except muster.MismatchError as error:
        for each in (error, pickle.loads(pickle.dumps(error))):
            assert each.received == muster.Received(left, 7, 5, "int16")
pair = w.split(rank // 2)
disagrees = pair.barrier if rank % 2 else lambda: pair.allreduce(np.ones(1))
for call in (disagrees, lambda: pair.recv(bytearray(1)), lambda: pair.irecv(bytearray(1)).wait()):
    try:
        call()
        raise AssertionError("has not failed")
    except muster.MismatchError as error:
        assert error.received is None
""")


def test_what_is_no_whole_number_is_a_type_error_and_no_call():
    run("""
for call in (lambda: w.broadcast(np.zeros(1), root=0.0), lambda: w.send(b"", 1.5), lambda: w.split("red")):
    try:
        call()
        raise AssertionError("has not failed")
    except TypeError:
        pass
""")


def test_elements_of_any_type_are_moved_and_reduced_by_functions():
    run("""
z = np.array([rank + 1j, -rank])
same(both("allgather", z), np.array([[each + 1j, -each] for each in range(4)]))
when = np.array(["2026-01-0%d" % (rank + 1)], "datetime64[D]")
assert both("broadcast", when.copy(), root=3)[0] == np.datetime64("2026-01-04")
pair = np.dtype([("loss", "f8"), ("O", "i4")])
pairs = np.array([(1.0 / (rank + 1), rank)], pair)
assert w.allgather(pairs).tolist() == [[(1.0 / (each + 1), each)] for each in range(4)]
def least(lower, inout, dtype):
    a, b = np.frombuffer(lower, pair), np.frombuffer(inout, pair)
    b[:] = np.where(a["loss"] < b["loss"], a, b)
many = np.full(3000, pairs[0], pair)
assert set(w.allreduce(many, op=c.operation(least)).tolist()) == {(0.25, 3)}
def add(lower, inout, dtype):
    assert (dtype, lower.format, inout.format, lower.ndim) == ("V16", "B", "B", 1) and len(lower) == len(inout)
    b = np.frombuffer(inout, np.complex128)
    b += np.frombuffer(lower, np.complex128)
same(w.allreduce(z.copy(), op=c.operation(add)), np.array([6 + 4j, -6]))
texts = np.array(["rank %d" % rank], "U10")
assert w.sendrecv(texts, (rank + 1) % 4, out := np.empty(1, "U10"), (rank - 1) % 4).dtype == "V40"
assert out[0] == "rank %d" % ((rank - 1) % 4)
""")


def test_an_exception_in_a_function_of_python_fails_the_call_on_every_rank():
    run("""
def reduce(lower, inout, dtype):
    if rank == 0:
        raise ZeroDivisionError("not today")
broken = c.operation(reduce)
try:
    w.allreduce(np.ones(100_000), op=broken)
    raise AssertionError("has not failed")
except muster.ReductionError as error:
    if rank == 0:
        assert isinstance(error.__cause__, ZeroDivisionError) and "not today" in str(error)
    else:
        assert "rank 0" in str(error)
    assert error.rank == 0 and error.node_id is error.failure is None
assert w.allreduce(np.ones(1))[0] == 4  # the group holds
""")


def test_what_a_function_of_python_raises_keeps_nothing_of_the_librarys_memory():
    run("""
import weakref
class Watched(np.ndarray):
    pass
seen = []
def fail(array):
    part = array[1:]
    raise ZeroDivisionError("not today")
def reduce(lower, inout, dtype):
    array = np.frombuffer(inout, dtype).view(Watched)
    seen.append((lower, inout, weakref.ref(array)))
    try:
        fail(array)
    except ZeroDivisionError:
        raise ValueError("nor tomorrow")
def ended(view):
    try:
        return view.nbytes < 0
    except ValueError:  # it was released
        return True
try:
    w.allreduce(np.ones(100_000), op=c.operation(reduce))
    raise AssertionError("has not failed")
except muster.ReductionError as error:
    for lower, inout, array in seen:
        assert isinstance(error.__cause__.__context__, ZeroDivisionError) and error.__cause__.__traceback__
        assert array() is None and ended(lower) and ended(inout)
seen = w.allgather_object(len(seen))
assert any(seen), seen
""")


def test_an_exception_without_words_in_a_function_of_python_fails_the_call_like_any_other():
    run("""
class Wordless(Exception):
    def __str__(self):
        raise RuntimeError("no words")
def reduce(lower, inout, dtype):
    if rank == 0:
        raise Wordless
try:
    w.allreduce(np.ones(100_000), op=c.operation(reduce))
    raise AssertionError("has not failed")
except muster.ReductionError as error:
    assert error.rank == 0 and ("Wordless" in str(error)) == isinstance(error.__cause__, Wordless) == (rank == 0)
""", workers=2)


def test_the_rank_of_a_function_that_raised_is_that_in_the_world_and_the_same_on_every_rank():
    run("""
import pickle
called = []
def reduce(lower, inout, dtype):
    called.append(True)
    raise ZeroDivisionError
broken, pair = c.operation(reduce), w.create([3, 2])
if pair is not None:
    try:
        pair.allreduce(np.ones(100_000), op=broken)
        raise AssertionError("has not failed")
    except muster.ReductionError as error:
        first = min(each for each, has in pair.allgather_object((rank, bool(called))) if has)
        assert error.rank == pickle.loads(pickle.dumps(error)).rank == first
""")


def test_an_operation_is_taken_by_the_groups_of_its_cluster_only():
    run("""
alone = muster.init(environment=False)
def add(lower, inout, dtype):
    np.add(np.frombuffer(lower, dtype), np.frombuffer(inout, dtype), out=np.frombuffer(inout, dtype))
def fail(lower, inout, dtype):
    raise ZeroDivisionError
theirs, mine = alone.operation(fail), c.operation(add)
assert theirs.number == mine.number
made = [w.split(0), w.create(range(4)), c.create_group(range(4), "t")]
for group in (w, *made, made[0].split(0)):
    words = told(group.allreduce, np.ones(3), op=theirs)
    assert words["error"] == "InvalidError" and "another cluster" in words["sentence"], words
    same(group.allreduce(np.ones(3), op=mine), np.full(3, 4.0))
assert told(alone.world.allreduce, np.ones(3), op=mine)["error"] == "InvalidError"
alone.finalize()
""")


def test_an_operation_that_nothing_refers_to_is_freed_when_its_calls_have_ended():
    run("""
import gc
from muster._library import LIBRARY
def add(lower, inout, dtype):
    np.add(np.frombuffer(lower, dtype), np.frombuffer(inout, dtype), out=np.frombuffer(inout, dtype))
plus, kept = c.operation(add), c.operation(add)
same(w.allreduce(np.ones(3), op=plus), np.full(3, 4.0))
number, handle = plus.number, c._owner.value
del plus
gc.collect()
assert LIBRARY.muster_op_free(handle, number) == muster.Status.INVALID  # a second time
same(w.allreduce(np.ones(3), op=kept), np.full(3, 4.0))
assert LIBRARY.muster_op_free(handle, kept.number) == muster.Status.OK
c.operation(add)  # and this process's end does not mind one
""")


def test_an_exception_fails_all_calls_with_its_function_that_are_under_way():
    run("""
import threading
raised = threading.Event()
def reduce(lower, inout, dtype):
    if rank == 0 and lower[0] == 13:
        raised.set()
        raise ZeroDivisionError("not today")
    assert rank != 0 or raised.wait(60)
broken, other, ends = c.operation(reduce), w.split(0), {}
def call(group, value):
    try:
        ends[value] = group.allreduce(np.full(100_000, value), op=broken)
    except muster.ReductionError as error:
        ends[value] = error
threads = [threading.Thread(target=call, args=words) for words in ((w, 1.0), (other, 13.0))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for value in (1.0, 13.0):
    assert isinstance(ends[value], muster.ReductionError) and ("not today" if rank == 0 else "rank 0") in str(ends[value])
""")


def test_a_masked_array_is_refused_by_every_call():
    run("""
masked = np.ma.masked_array(np.ones(2), [True, False])
calls = {
    "buf": [lambda: w.allreduce(masked), lambda: w.iallreduce(masked), lambda: w.broadcast(masked), lambda: w.allgather(masked),
            lambda: w.reduce(masked, root=rank), lambda: w.send(masked, rank), lambda: w.allreduce(masked, np.ones(2))],
    "out": [lambda: w.allreduce(np.ones(2), masked), lambda: w.recv(masked, rank)],
    "value": [lambda: c.store.set("masked", masked)],
}
for name in calls:
    for call in calls[name]:
        wrong = told(call)
        assert wrong["error"] == "InvalidError" and wrong["sentence"].startswith(name + ": a masked array"), wrong
same(w.allreduce(masked.filled(0)), np.array([0.0, 4.0]))
""")


@pytest.mark.parametrize("call, words", [
    ("w.allreduce(np.zeros((4, 4))[:, 0])", ["C-contiguous", "(4,)"]),
    ("w.allreduce(np.zeros(4, complex))", ["'sum'", "16 bytes", "Cluster.operation"]),
    ("w.allreduce(b'1234')", ["buf", "bytes", "writable"]),
    ("w.allreduce(np.zeros(4, bool))", ["'sum'", "bool"]),
    ("w.allreduce(np.zeros(4, bool), op=c.operation(lambda lower, inout, dtype: None))", ["op: ", "bool", "uint8"]),
    ("w.reduce_scatter(np.zeros(4, bool), op=c.operation(lambda lower, inout, dtype: None))", ["op: ", "bool", "uint8"]),
    ("w.allreduce(np.zeros(4), op='sun')", ["'sun'", "sum, prod"]),
    ("w.allreduce(np.zeros(4), out=np.zeros(3))", ["out", "3 elements", "4"]),
    ("w.allreduce(np.zeros(4), out=np.zeros(4, np.float32))", ["float32", "float64"]),
    ("w.allreduce([1, 2])", ["list", "buffer protocol", "DLPack"]),
    ("w.allgather(np.zeros(4), np.zeros(5))", ["5 elements", "8"]),
    ("w.allgatherv(np.zeros(4), [4, 4, 1])", ["counts", "3 numbers", "2 members"]),
    ("w.allgatherv(np.zeros(4), [4, -1])", ["counts", "-1"]),
    ("w.allgatherv(np.zeros(4), [4, 4], np.zeros(8), [1, 5])", ["out", "8 elements", "9"]),
    ("w.reduce_scatter(np.zeros(5))", ["5 elements", "2 members"]),
    ("w.scatter(root=1 - rank)", ["out", "root"]),
    ("w.scatterv(np.zeros(4), [2, 2], root=rank)", ["buf and counts", "first argument", "scatterv(out, buf, counts)"]),
    ("w.allgatherv(np.zeros(2), [2, 2], displs=[2, 0])", ["out: needed with displs"]),
    ("w.gatherv(np.zeros(2), [2, 2], displs=[2, 0], root=rank)", ["out: needed with displs"]),
    ("w.alltoallv(np.zeros(2), [1, 1], [1, 1], out_displs=[1, 0])", ["out: needed with displs"]),
    ("w.allgather(np.full(1, 7, np.uint8), np.zeros(2, bool))", ["bool", "uint8"]),
    ("w.allgather(np.zeros(1, 'M8[s]'), np.zeros(2, 'M8[ns]'))", ["V8 (datetime64[ns])", "V8 (datetime64[s])", "must be the same"]),
    ("w.allgather(np.zeros(1, np.complex64), np.zeros(2, '>f8'))", ["V8 (>d)", "V8 (Zf)"]),
    ("w.send(b'', 9)", ["9"]),
    ("w.send(b'', 2**40)", ["to: is 1099511627776; expected 0 to the group's size less 1"]),
    ("w.send(b'', 0, tag=2**31)", ["tag: is 2147483648; expected 0 to 2147483647"]),
    ("w.irecv(bytearray(1), -2**40)", ["source: is -1099511627776", "or muster.ANY_SOURCE"]),
    ("w.sendrecv(b'', 0, bytearray(1), out_tag=2**31)", ["out_tag: is 2147483648", "or muster.ANY_TAG"]),
    ("w.broadcast(np.zeros(2), root=2**31)", ["root: is 2147483648; expected 0 to the group's size less 1"]),
    ("w.broadcast(b'read-only', root=5)", ["root: is 5; expected 0 to the group's size less 1"]),
    ("w.scatter(root=5)", ["root: is 5"]),
    ("w.set_timeout(-3)", ["-3", "seconds"]),
    ("w.scatter_object([1], root=rank)", ["1 given", "2 members"]),
    ("w.scatter_object(np.arange(3), root=rank)", ["3 given", "2 members"]),
    ("w.scatter_object(root=rank)", ["0 given", "2 members"]),
])
def test_bad_input_is_told_in_words_before_anything_begins(call, words):
    with Cluster(packaged(f"{START}say(**told(lambda: {call}))\nw.barrier()\nc.finalize()"), workers=2) as cluster:
        for worker in cluster.succeed(timeout=60):
            assert said(worker)["error"] == "InvalidError"
            for word in words:
                assert word in said(worker)["sentence"], said(worker)["sentence"]
