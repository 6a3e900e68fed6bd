"""muster.torch with real PyTorch: the backend in its calls, with its groups, at its ends, and when a rank is lost."""

import re
import signal
import subprocess

import pytest

from cluster import MUSTER, TREE, clean_environment
from optional import IPV6
from pages import Page
from torches import TIMEOUT_S, Ranks, fetch_torch, python, said

NEWEST = fetch_torch.VERSIONS[-1]
BLOCKS = Page("docs", "pytorch.md").section("The backend", "python")
EXAMPLE = TREE / "examples" / "torch_digits"
DIGITS = TREE / "examples" / "train_digits" / "data" / "digits.csv"


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    return fetch_torch.installed(tmp_path_factory.mktemp("installed"))


def succeed(env, lines, ranks=2, version=NEWEST, env_of_all=()):
    with Ranks(python(version), lines, {**env, **dict(env_of_all)}, ranks) as running:
        return [said(rank) for rank in running.succeed(TIMEOUT_S)]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_pages_programs_run(env, number):
    succeed(env, BLOCKS[number])


COLLECTIVES = """
    rank, size = begin()
    def like(*numbers, dtype=torch.float32):
        return torch.tensor(numbers, dtype=dtype)

    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8,
                  torch.uint8, torch.int16, torch.int32, torch.int64):
        x = torch.full((5,), rank + 1, dtype=dtype)
        dist.all_reduce(x)
        assert x.dtype is dtype and x.tolist() == [size * (size + 1) // 2] * 5, (dtype, x)
    x = like(rank, 10.0 * rank)
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    assert x.tolist() == [(size - 1) / 2, 5.0 * (size - 1)]
    x = torch.tensor([rank == 1, False])
    dist.all_reduce(x)
    assert x.tolist() == [True, False]

    x = torch.arange(6.0) if rank == 1 else torch.zeros(6)
    dist.broadcast(x, src=1)
    assert x.tolist() == list(range(6))
    z = torch.full((3,), complex(rank, 1)) if rank == 0 else torch.zeros(3, dtype=torch.complex64)
    dist.broadcast(z, src=0)
    assert z.tolist() == [1j] * 3

    x = like(rank + 1.0)
    dist.reduce(x, dst=0, op=dist.ReduceOp.MAX)
    assert rank or x.item() == size
    outs = [torch.zeros(2) for _ in range(size)]
    dist.all_gather(outs, like(rank, -rank))
    assert [out.tolist() for out in outs] == [[r, -r] for r in range(size)]
    uneven = [torch.zeros(r + 1) for r in range(size)]
    dist.all_gather(uneven, torch.full((rank + 1,), float(rank)))
    assert [out.tolist() for out in uneven] == [[r] * (r + 1) for r in range(size)]
    flat = torch.zeros(2 * size)
    dist.all_gather_into_tensor(flat, like(rank, rank))
    assert flat.tolist() == [r for r in range(size) for _ in range(2)]
    gathered = [torch.zeros(1) for _ in range(size)] if rank == 0 else None
    dist.gather(like(rank), gathered, dst=0)
    assert rank or [out.item() for out in gathered] == list(range(size))
    x = torch.zeros(2)
    dist.scatter(x, [like(r, r + 1) for r in range(size)] if rank == 0 else None, src=0)
    assert x.tolist() == [rank, rank + 1]
    x = torch.zeros(2)
    dist.reduce_scatter(x, [like(r, 1) for r in range(size)])
    assert x.tolist() == [size * rank, size]
    x = torch.zeros(1)
    dist.reduce_scatter_tensor(x, torch.arange(float(size)))
    assert x.item() == size * rank
    outs = [torch.zeros(1) for _ in range(size)]
    dist.all_to_all(outs, [like(10 * rank + r) for r in range(size)])
    assert [out.item() for out in outs] == [10 * r + rank for r in range(size)]
    x = torch.zeros(size, 2)
    dist.all_to_all_single(x, torch.full((size, 2), float(rank)))
    assert x[:, 0].tolist() == list(range(size))
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(size)]
    dist.barrier()
    right, left = (rank + 1) % size, (rank - 1) % size
    sends, x = dist.isend(like(rank), right, tag=3), torch.zeros(1)
    dist.recv(x, left, tag=3)
    sends.wait()
    assert x.item() == left
    pairs = [dist.P2POp(dist.isend, like(rank), right), dist.P2POp(dist.irecv, x, left)]
    for work in dist.batch_isend_irecv(pairs):
        work.wait()
    assert x.item() == left
    dist.destroy_process_group()
    say(done=True)
"""


@pytest.mark.parametrize("version", fetch_torch.VERSIONS)
@pytest.mark.parametrize("ranks", [1, 3])
def test_every_call(env, version, ranks):
    lines = COLLECTIVES if ranks > 1 else COLLECTIVES.replace("src=1", "src=0").replace("rank == 1", "rank == 0")
    assert succeed(env, lines, ranks, version) == [{"done": True}] * ranks


def test_tensors_that_do_not_lie_one_after_another_and_empty_ones(env):
    succeed(env, """
        rank, size = begin()
        x = torch.full((3, 2), rank + 1.0).t()
        dist.all_reduce(x)
        assert x.tolist() == [[3.0] * 3] * 2 and not x.is_contiguous()
        work = dist.broadcast(wide := torch.full((2, 4), float(rank))[:, ::2], src=1, async_op=True)
        work.wait()
        assert wide.tolist() == [[1.0, 1.0]] * 2
        outs = [torch.zeros(2, 2).t() for _ in range(size)]
        dist.all_gather(outs, torch.arange(4.0).view(2, 2).t() + rank)
        assert outs[1].tolist() == [[1.0, 3.0], [2.0, 4.0]]
        x = torch.full((4, 2), 7.0)[:, 0]
        dist.send(torch.ones(2), 1) if rank == 0 else dist.recv(x, 0)
        assert x.tolist() == ([7.0] * 4 if rank == 0 else [1.0, 1.0, 7.0, 7.0]), x
        dist.all_reduce(lazy := torch.full((2,), 1 + 2j).conj().imag)
        assert lazy.tolist() == [-2.0] * 2  # the page says so: torch passes a copy
        empty = torch.zeros(0, 3)
        dist.all_reduce(empty)
        dist.all_gather([torch.zeros(0) for _ in range(size)], torch.zeros(0))
        dist.broadcast(empty, 0)
        dist.barrier()
        dist.destroy_process_group()
    """)


@pytest.mark.parametrize("version", fetch_torch.VERSIONS)
def test_tensors_of_the_inference_mode_in_it_and_outside(env, version):
    """A thread of the library, which is in no mode, writes what a work brings."""
    succeed(env, """
        rank, size = begin()
        with torch.inference_mode():
            born_in_it = [torch.ones(2, 3), torch.ones(3, 2).t()]
        for within in (True, False):
            for x in (*born_in_it, torch.ones(2, 3), torch.ones(3, 2).t(), torch.ones(3, 2, requires_grad=True).t()):
                before = x.sum().item()
                with torch.inference_mode(within):
                    dist.all_reduce(x)
                    dist.all_reduce(x, async_op=True).wait()
                assert x.sum().item() == 4 * before, (within, x)
        dist.destroy_process_group()
    """, version=version)


@pytest.mark.parametrize("version", fetch_torch.VERSIONS)
def test_sums_and_averages_of_complex_numbers(env, version):
    succeed(env, """
        rank, size = begin()
        SUM, AVG = dist.ReduceOp.SUM, dist.ReduceOp.AVG
        for dtype in (torch.complex64, torch.complex128):
            mine = torch.tensor([[1 + 2j], [3 - 4j]], dtype=dtype) * (rank + 1)
            for op, right in ((SUM, [3 + 6j, 9 - 12j]), (AVG, [1.5 + 3j, 4.5 - 6j])):
                for late in (False, True):
                    def ended(call, *tensors, **named):
                        work = call(*tensors, op=op, async_op=late, **named)
                        assert work.wait() if late else work is None
                    ended(dist.all_reduce, x := mine.clone())
                    assert x.flatten().tolist() == right
                    ended(dist.reduce, x := mine.clone(), dst=1)
                    assert x.flatten().tolist() == (right if rank == 1 else mine.flatten().tolist())
                    ended(dist.reduce, x := mine.repeat(1, 2)[:, ::2], dst=1)
                    assert not x.is_contiguous() and (rank == 0 or x.flatten().tolist() == right)
                    ended(dist.reduce_scatter, x := torch.zeros(1, dtype=dtype), list(mine))
                    assert x.tolist() == [right[rank]]
                    ended(dist.reduce_scatter_tensor, x := torch.zeros(1, dtype=dtype), mine.conj())
                    assert x.tolist() == [right[rank].conjugate()]
                    outs = [torch.zeros(1, dtype=dtype) for _ in range(2)]
                    with dist._coalescing_manager(async_ops=late) as works:
                        for out in outs:
                            dist.reduce_scatter_tensor(out, mine, op=op)
                    late and works.wait()
                    assert [out.item() for out in outs] == [right[rank]] * 2
            dist.all_to_all_single(x := torch.zeros_like(mine), mine)
            assert x.flatten().tolist() == [(1 + 2j, 3 - 4j)[rank] * (other + 1) for other in range(size)]
            gathered = [torch.zeros_like(mine) for _ in range(size)] if rank == 0 else None
            dist.gather(mine, gathered)
            assert rank or torch.equal(gathered[1], 2 * mine)
        dist.destroy_process_group()
    """, version=version)


def test_works_and_futures(env):
    """A work keeps its tensors, several go on at a time, and callbacks of futures run on another thread."""
    succeed(env, """
        import gc, threading
        rank, size = begin()
        works = [dist.all_reduce(torch.full((1000,), float(i)), async_op=True) for i in range(20)]
        gc.collect()
        for i, work in enumerate(works):
            assert work.wait() and work.get_future().value()[0].tolist() == [2.0 * i] * 1000
        x, threads = torch.ones(3), []
        def after(future):
            threads.append(threading.get_ident())
            return future.value()[0] + 1
        future = dist.all_reduce(x, async_op=True).get_future().then(after)
        assert future.wait().tolist() == [3.0] * 3
        receiving = dist.irecv(late := torch.zeros(1), src=1 - rank)
        threads.clear()
        more = receiving.get_future().then(after)  # before the end: nobody sends before the barrier
        from datetime import timedelta
        error = told(receiving.wait, timedelta(milliseconds=50))
        assert "still goes on" in error["sentence"], error
        dist.barrier()
        dist.send(torch.ones(1), 1 - rank)
        receiving.wait()
        assert late.item() == 1 and more.wait().item() == 2
        assert len(threads) == 1 and threads[0] != threading.get_ident()
        dist.destroy_process_group()
    """)


def test_a_call_that_waits_does_not_get_the_time_out_of_another_threads_call(env):
    """The other call's time-out is the group's for a moment, and a call that starts then waits for the end of that."""
    succeed(env, """
        import muster, threading, time
        from datetime import timedelta
        from muster.torch import _backend
        rank, size = begin()
        backend, = _backend._alive
        own, is_set, counted, real = dist.AllreduceOptions(), threading.Event(), [], muster.Group.set_timeout
        own.timeout = timedelta(seconds=77)
        def set_timeout(group, seconds):
            real(group, seconds)
            counted.append(seconds)
            if seconds == 77:
                is_set.set()
                time.sleep(0.5)  # for the other thread to come to its turn; no length of this makes the test fail
        muster.Group.set_timeout = set_timeout
        first, second = torch.ones(3), torch.ones(5)
        works = []
        thread = threading.Thread(target=lambda: works.append(backend.allreduce([first], own)))
        thread.start()
        assert is_set.wait(60)
        dist.all_reduce(second)
        assert len(counted) == 2 and counted[0] == 77, counted
        thread.join()
        works[0].wait()
        assert first.tolist() == [2.0] * 3 and second.tolist() == [2.0] * 5
        dist.destroy_process_group()
    """)


def test_a_callback_may_wait_for_further_works(env):
    """As torch's hook PowerSGD does. The callback is attached before the end, for rank 1 comes late."""
    succeed(env, """
        import time
        rank, size = begin()
        def again(wait):
            def hook(future):
                return wait(future.value()[0] + 1)
            time.sleep(rank)  # without the delay the callback may come after the end, and would prove nothing
            return dist.all_reduce(torch.ones(3), async_op=True).get_future().then(hook).wait()
        def by_future(x):
            return dist.all_reduce(x, async_op=True).get_future().wait()[0]
        def by_work(x):
            dist.all_reduce(x, async_op=True).wait()
            return x
        def by_messages(x):
            other = torch.zeros(1 << 20)
            works = [dist.irecv(other, 1 - rank), dist.isend(torch.full((1 << 20,), 6.0), 1 - rank)]
            assert [work.wait() for work in works] and other[-1] == 6
            dist.send(x, 1 - rank) if rank == 0 else dist.recv(x, 1 - rank)
            dist.recv(x, 1 - rank) if rank == 0 else dist.send(x, 1 - rank)
            return x * 2
        for wait in (by_future, by_work, by_messages):
            assert again(wait).tolist() == [6.0] * 3, wait
        dist.all_reduce(x := torch.ones(1))
        assert x.item() == 2
        dist.destroy_process_group()
    """)


def test_a_hook_of_torch_that_waits_in_its_callback(env):
    succeed(env, """
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powerSGD
        rank, size = begin()
        torch.manual_seed(1)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
        state = powerSGD.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=0.5)
        model.register_comm_hook(state, powerSGD.powerSGD_hook)
        for step in range(4):
            model.zero_grad()
            model(torch.ones(2, 64) * (rank + 1)).sum().backward()
        grads = [torch.zeros(64, 64) for _ in range(size)]
        dist.all_gather(grads, model.module.weight.grad)
        assert torch.equal(grads[0], grads[1]) and grads[0].abs().sum() > 0
        dist.destroy_process_group()
    """)


def test_sub_groups(env):
    succeed(env, """
        rank, size = begin()
        groups = [dist.new_group([0, 1]), dist.new_group([1, 2]), dist.new_group([0, 1])]
        for group, members in zip(groups, ([0, 1], [1, 2], [0, 1])):
            if rank in members:
                x = torch.tensor([rank + 1])
                dist.all_reduce(x, group=group)
                assert x.item() == sum(member + 1 for member in members)
        if rank != 2:       # made by its members alone
            own = dist.new_group([0, 1], use_local_synchronization=True)
            x = torch.tensor([5.0]) if rank == 1 else torch.zeros(1)
            dist.broadcast(x, src=1, group=own)
            assert x.item() == 5
            dist.destroy_process_group(own)
        dist.barrier()
        dist.destroy_process_group()
    """, ranks=3)


def test_ddp_and_fsdp_on_the_cpu(env):
    """Ranks get the same gradients as one process."""
    succeed(env, """
        from torch.distributed.fsdp import fully_shard
        rank, size = begin()
        def train(wrap, inputs):
            torch.manual_seed(1)
            model = wrap(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)))
            for _ in range(3):
                model.zero_grad()
                model(inputs).pow(2).mean().backward()
                with torch.no_grad():
                    for p in model.parameters():
                        p -= 0.1 * p.grad
            return [getattr(p, "full_tensor", lambda: p)().detach().clone() for p in model.parameters()]
        torch.manual_seed(7)
        whole = torch.randn(2 * size, 4)
        mine, wanted = whole[2 * rank : 2 * rank + 2], train(lambda model: model, whole)
        from torch.distributed.device_mesh import init_device_mesh
        mesh = init_device_mesh("cpu", (size,))
        for wrap in (torch.nn.parallel.DistributedDataParallel, lambda model: fully_shard(model, mesh=mesh)):
            for got, right in zip(train(wrap, mine), wanted):
                torch.testing.assert_close(got, right)
        dist.destroy_process_group()
    """)


REFUSED = {
    "recv": ("dist.recv(torch.zeros(1))", "src is needed"),
    "premul_sum": ("dist.all_reduce(torch.ones(2), op=dist._make_nccl_premul_sum(2.0))", "PREMUL_SUM is not supported"),
    "sparse": ("dist.all_reduce(torch.eye(2).to_sparse())", "sparse_coo; muster moves dense tensors"),
    "average of bools": ("dist.all_reduce(torch.ones(2, dtype=torch.bool), op=dist.ReduceOp.AVG)", "average of bools"),
    "bits of floats": ("dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BAND)", "and"),
    "float8": ("dist.all_reduce(torch.ones(2).to(torch.float8_e4m3fn))", "float8_e4m3fn can be moved, but not reduced"),
    "products of complex numbers": ("dist.reduce(torch.ones(2) * 1j, 0, op=dist.ReduceOp.PRODUCT)", "PRODUCT of complex numbers"),
    "a largest complex number": ("dist.reduce_scatter(torch.ones(2) * 1j, [torch.ones(2) * 1j] * 2, op=dist.ReduceOp.MAX)",
                                 "MAX of complex numbers"),
    "lengths": ("dist.all_gather_into_tensor(torch.zeros(3), torch.zeros(2))", "has 3 elements, and 4 are needed"),
    "any tag": ("dist.recv(torch.zeros(1), 1 - dist.get_rank(), tag=-1)", "tag is -1: expected 0 or more"),
}


@pytest.mark.parametrize("version", fetch_torch.VERSIONS)
def test_what_is_not_supported_is_refused_by_name(env, version):
    calls = ", ".join(f"{name!r}: told(lambda: {call})" for name, (call, _) in REFUSED.items())
    for words in succeed(env, f"begin()\nsay(**{{{calls}}})\ndist.barrier()\ndist.destroy_process_group()", version=version):
        for name, (_, pattern) in REFUSED.items():
            assert re.search(pattern, words[name]["sentence"]), (name, words[name])


LOSS = """
    import os, signal
    rank, size = begin()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    waiting = dist.irecv(torch.zeros(1), src=1)
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    say(sync=told(dist.all_reduce, torch.ones(2)), work=told(waiting.wait), future=told(waiting.get_future().wait),
        passed=[waiting.is_completed(), waiting.is_success(), str(waiting.exception())],
        ddp=told(lambda: model(torch.ones(1, 2)).sum().backward()))
    dist.destroy_process_group()
    say(ended=True)
"""


def test_a_lost_rank_is_torchs_error_with_our_sentence(env):
    with Ranks(python(NEWEST), LOSS, env, ranks=3) as ranks:
        ranks.wait(TIMEOUT_S)
        assert ranks.workers[1].returncode == -signal.SIGKILL
        for rank in (ranks.workers[0], ranks.workers[2]):
            assert rank.returncode == 0, rank.stderr
            words = said(rank)
            assert words["ended"] and words["passed"] == [False, True, "None"]  # the page says so
            for name in ("sync", "work"):
                assert words[name]["error"] == "DistBackendError"
            for name in ("sync", "work", "future", "ddp"):
                assert re.search(r"rank 1 \(node id .*\) is lost", words[name]["sentence"]), (name, words[name])
                assert "RuntimeError" in words[name]["kinds"]


ENDS = {
    "destroyed": "dist.destroy_process_group()", "not destroyed": "pass",
    "with work pending": "waiting = dist.irecv(torch.zeros(1), src=1 - rank)",
    "destroyed with work pending": "waiting = dist.irecv(torch.zeros(1), src=1 - rank)\ndist.destroy_process_group()",
    "a future pending": "f = dist.irecv(torch.zeros(1), src=1 - rank).get_future().then(lambda f: f.value())",
    "rank 0 leaves first": "import time\nif rank == 1: time.sleep(1)",
}


@pytest.mark.parametrize("end", ENDS)
def test_ends(env, end):
    """However a program ends, it does not hang and does not crash."""
    lines = f"rank, size = begin()\ndist.all_reduce(torch.ones(2))\n{ENDS[end]}\nsay(rank=rank)"
    assert [words["rank"] for words in succeed(env, lines)] == [0, 1]


def test_an_exception_is_everybodys_reason(env):
    lines = "rank, size = begin()\nif rank == 1: raise ValueError('my own fault')\ndist.all_reduce(torch.ones(2))"
    with Ranks(python(NEWEST), lines, env) as ranks:
        zero, one = ranks.wait(TIMEOUT_S)
        assert (zero.returncode, one.returncode) == (1, 1)
        assert "DistBackendError" in zero.stderr and "my own fault" in zero.stderr


def test_when_a_collectives_time_is_up_the_error_names_who_is_missing(env):
    with Ranks(python(NEWEST), """
        from datetime import timedelta
        rank, size = begin()
        late = dist.new_group([0, 1, 2], timeout=timedelta(seconds=1))
        if rank == 0:
            say(barrier=told(dist.barrier, group=late))
        dist.barrier()
        dist.destroy_process_group()
    """, env, ranks=3) as ranks:
        words = said(ranks.succeed(TIMEOUT_S)[0])["barrier"]
        assert words["error"] == "DistBackendError"
        assert re.search(r"rank 1 \(node id .*\) never entered barrier #1 on group .* within the 1 s", words["sentence"]), words


def test_long_time_outs_are_taken_and_a_refused_one_leaves_nothing_behind(env):
    succeed(env, """
        from datetime import timedelta
        from muster.torch import _backend
        rank, size = begin(timeout=timedelta(days=30000))  # more seconds than any setting takes
        backend, = _backend._alive
        assert told(backend.set_timeout, timedelta(seconds=-1))["error"] == "InvalidError"
        assert backend.options._timeout == timedelta(days=30000)
        limited = dist.AllreduceOptions()
        limited.timeout = timedelta(seconds=60)
        backend.allreduce([torch.ones(1)], limited).wait()  # behind it the group's own is set again
        received = dist.irecv(torch.zeros(1), 1 - rank)
        dist.send(torch.ones(1), 1 - rank)
        assert received.wait(timedelta.max)
    """)


def test_a_group_can_be_made_again(env, tmp_path):
    """torch makes a store at the same port each time. Rank 1 waits until rank 0 has ended the one before: if it found that one, torch
    would count an attempt that failed, and no later one of rank 1 would meet rank 0."""
    succeed(env, f"""
        import pathlib, time
        def ended(turn):
            return pathlib.Path({str(tmp_path)!r}, f"turn {{turn}}")
        for turn in range(3):
            rank, size = begin()
            x = torch.ones(1)
            dist.all_reduce(x)
            assert x.item() == size
            dist.destroy_process_group()
            if rank == 0:
                ended(turn).touch()
            while not ended(turn).exists():
                time.sleep(0.01)  # rank 0 says it by a file: the store is what must not be asked
    """)


def test_the_next_group_on_a_store_never_finds_the_address_of_the_one_before(env):
    """Rank 0 is slow to remove it, and rank 1 hurries on."""
    succeed(env, """
        import datetime, os, time
        from muster.torch import _joining
        rank, size, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
        joined_at = _joining._joined_at
        def slow(*words):
            cluster = joined_at(*words)
            # Time for the other rank to come to its next group, if nothing holds it. No length of this sleep makes the test fail.
            time.sleep(0.5)
            return cluster
        if rank == 0:
            _joining._joined_at = slow
        store = dist.TCPStore("127.0.0.1", port, size, rank == 0)
        for _ in range(3):
            dist.init_process_group("muster", store=store, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=20))
            dist.destroy_process_group()
    """)


def test_all_hear_that_rank_0_could_start_no_scheduler(env):
    for rank, told in enumerate(succeed(env, """
        import os
        rank, size, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
        store = dist.TCPStore("127.0.0.1", port, size, rank == 0)
        try:
            dist.init_process_group("muster", store=store, rank=rank, world_size=size)
        except RuntimeError as error:
            say(told=str(error))
        store.set("heard", "") if rank else store.get("heard")  # rank 0 has the store
    """, env_of_all={"MUSTER_SCHED_HOST": "192.0.2.1"})):
        assert "192.0.2.1" in told["told"], (rank, told)
        assert rank == 0 or "rank 0 started no scheduler: " in told["told"], told


@pytest.mark.parametrize("host, binds, told", [("127.0.0.1", "*", "127.0.0.1"), pytest.param("::1", "::", "[::1]", marks=IPV6)])
def test_where_the_scheduler_listens_at_every_address_the_ranks_hear_of_its_host(env, host, binds, told):
    words = succeed(env, """
        from muster.torch import _joining
        joined_at = _joining._joined_at
        def heard(address, *words):
            say(address=address)
            return joined_at(address, *words)
        _joining._joined_at = heard
        begin()
    """, env_of_all={"MUSTER_SCHED_HOST": host, "MUSTER_SCHED_BIND": binds})
    assert words[0] == words[1] and words[0]["address"].rpartition(":")[0] == told, words


def test_a_group_leaves_no_address_in_its_store(env):
    """The next group may have the same store, and a rank must not find the scheduler of the one before there."""
    succeed(env, """
        import os
        rank, size, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
        store = dist.TCPStore("127.0.0.1", port, size, rank == 0)
        dist.init_process_group("muster", store=store, rank=rank, world_size=size)
        store.set("the program's", "own")
        dist.barrier()
        assert store.list_keys() == ["the program's"], store.list_keys()
        dist.barrier()
        dist.destroy_process_group()
    """)


# torchrun's ranks write to one pipe: each says its line at once.
PROGRAM = """
import os, torch, torch.distributed as dist
dist.init_process_group("muster")
x = torch.ones(1)
dist.all_reduce(x)
os.write(1, f"rank {dist.get_rank()} sum {x.item()}\\n".encode())
dist.destroy_process_group()
"""


SUMS = [f"rank {rank} sum 4.0" for rank in range(4)]


@pytest.mark.parametrize("version", fetch_torch.VERSIONS)
def test_under_torchrun(env, tmp_path, version):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [python(version).with_name("torchrun"), "--standalone", "--nproc-per-node", "4", tmp_path / "program.py"]
    done = subprocess.run(command, env=clean_environment(env), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == SUMS


def under_muster_run(env, folder, version, *program):
    """What the ranks say, one after another."""
    words = ["--worker_num=4", "--local_worker_num=4", "--master_port=0", "--join=True", f"--log_dir={folder}", "--cluster_time_out=240"]
    command = [MUSTER, "run", *words, python(version), *program]
    done = subprocess.run(command, env=clean_environment(env), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return [(folder / f"worker_{rank}.log").read_text().splitlines() for rank in range(4)]


@pytest.mark.parametrize("version", fetch_torch.VERSIONS)
def test_under_muster_run(env, tmp_path, version):
    (tmp_path / "program.py").write_text(PROGRAM)
    assert [said[-1] for said in under_muster_run(env, tmp_path, version, tmp_path / "program.py")] == SUMS


def test_a_training_has_the_losses_that_it_has_on_gloo(env, tmp_path):
    losses = {}
    for backend in ("muster", "gloo"):
        (tmp_path / backend).mkdir()
        words = [EXAMPLE / "torch_digits.py", DIGITS, "--epochs", "2", "--backend", backend]
        said = "\n".join(under_muster_run(env, tmp_path / backend, NEWEST, *words)[0])
        losses[backend] = [float(loss) for loss in re.findall(r"^epoch \d+: loss (\S+)$", said, re.M)]
    assert len(losses["muster"]) == 2 and losses["muster"][1] < losses["muster"][0]
    assert losses["muster"] == pytest.approx(losses["gloo"], abs=1e-4)


def test_other_versions_are_refused_by_name(env):
    code = ("import torch\ntorch.__version__ = '2.13.0'\nimport muster.torch\ntry:\n    muster.torch.register()\n"
            "except NotImplementedError as error:\n    print(error)")
    command = [python(NEWEST), "-c", code]
    done = subprocess.run(command, env=clean_environment(env), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert "this is version 2.13.0, and muster's backend works with 2.14 and 2.15" in done.stdout, done.stderr
