"""muster.torch beside what else goes on in a training's process: autograd's threads, a DataLoader's workers, and Ctrl-C."""

import re
import signal
import time

import pytest

from cluster import Process
from test_status import until_told
from torches import TIMEOUT_S, Ranks, fetch_torch, python, said

ENDS_S = 60  # of a wait that the group's time-out would end in half an hour; a busy machine lets a process run late
PROGRESS = re.compile(" forming since | still trying: | has been waiting for ")
INTERRUPTED = r"rank {} \(node id .*\) (was interrupted in|cancelled) {} #"
pytestmark = pytest.mark.parametrize("version", fetch_torch.VERSIONS)


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    return fetch_torch.installed(tmp_path_factory.mktemp("installed"))


def succeed_silently(env, version, lines):
    """Both ranks end well, and write nothing to standard error but how far they are, on a busy machine."""
    with Ranks(python(version), lines, env) as running:
        for rank in running.succeed(TIMEOUT_S):
            assert [line for line in rank.stderr.splitlines() if not PROGRESS.search(line)] == [], rank.describe()


def test_a_cluster_that_was_joined_for_a_group_that_then_fails_is_left(env, version):
    lines = """
        from datetime import timedelta
        from muster import _life
        alone = {"rank": 0, "world_size": 1, "store": dist.HashStore()}
        assert told(begin, timeout=timedelta(seconds=-1), **alone)["error"] == "InvalidError"
        assert not _life.open_clusters
        assert begin(**alone) == (0, 1)
        dist.destroy_process_group()
    """
    with Ranks(python(version), lines, env, ranks=1) as running:
        running.succeed(TIMEOUT_S)


# Torch has threads of its own for a CPU's backward pass only where such passes lie deep in each other: the 61st is on another thread.
NESTED = """
    import threading
    rank, size = begin()
    threads = []

    class Reduced(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, reduce):
            ctx.reduce = reduce
            return x.clone()
        @staticmethod
        def backward(ctx, grad):
            threads.append(threading.get_ident())
            return ctx.reduce(grad * (rank + 1)), None

    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, reduce, depth):
            ctx.reduce, ctx.depth = reduce, depth
            return x.clone()
        @staticmethod
        def backward(ctx, grad):
            with torch.enable_grad():
                x = torch.zeros_like(grad, requires_grad=True)
                deeper = Nested.apply(x, ctx.reduce, ctx.depth - 1) if ctx.depth else Reduced.apply(x, ctx.reduce)
                deeper.backward(grad)
            return x.grad, None, None

    def at_once(grad):
        dist.all_reduce(grad)
        return grad
    def by_work(grad):
        dist.all_reduce(grad, async_op=True).wait()
        return grad
    def by_future(grad):
        return dist.all_reduce(grad, async_op=True).get_future().then(lambda future: future.value()[0]).wait()
    def by_messages(grad):
        others = torch.zeros_like(grad)
        works = [dist.isend(grad, 1 - rank), dist.irecv(others, 1 - rank)]
        assert [work.wait() for work in works]
        return grad + others
    for reduce in (at_once, by_work, by_future, by_messages):
        for _ in range(10):
            x = torch.ones(1000, requires_grad=True)
            Nested.apply(x, reduce, 70).sum().backward()
            assert x.grad.tolist() == [3.0] * 1000, (reduce, x.grad)
    assert len(threads) == 40 and threading.get_ident() not in threads
    dist.all_reduce(x := torch.ones(1))
    assert x.item() == 2
    dist.destroy_process_group()
"""


def test_calls_from_a_thread_of_autograd(env, version):
    succeed_silently(env, version, NESTED)


def test_ddp_in_threads_of_the_program_beside_each_other(env, version):
    """Each has a group of its own, as has the main thread, which goes on meanwhile."""
    succeed_silently(env, version, """
        import threading
        rank, size = begin()
        torch.manual_seed(3)
        whole, main, called = torch.randn(2 * size, 4), threading.get_ident(), []
        def model():
            torch.manual_seed(1)
            return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        def hook(group, bucket):
            called.append(threading.get_ident())
            x = bucket.buffer().div_(size)
            return dist.all_reduce(x, group=group, async_op=True).get_future().then(lambda future: future.value()[0])
        alone = model()
        alone(whole).pow(2).mean().backward()
        groups = [dist.new_group() for _ in range(2)]
        wrapped = [torch.nn.parallel.DistributedDataParallel(model(), process_group=group) for group in groups]
        wrapped[1].register_comm_hook(groups[1], hook)
        ended = []
        def train(ddp):
            for _ in range(20):
                ddp.zero_grad()
                ddp(whole[2 * rank : 2 * rank + 2]).pow(2).mean().backward()
                for got, right in zip(ddp.parameters(), alone.parameters()):
                    torch.testing.assert_close(got.grad, right.grad)
            ended.append(threading.get_ident())
        threads = [threading.Thread(target=train, args=[ddp]) for ddp in wrapped]
        for thread in threads:
            thread.start()
        for _ in range(100):
            dist.all_reduce(x := torch.ones(3))
            assert x.tolist() == [size] * 3
        for thread in threads:
            thread.join()
        assert sorted(ended) == sorted(thread.ident for thread in threads) and main not in ended
        assert len(called) >= 20 and set(called) == {threads[1].ident}
        dist.destroy_process_group()
    """)


# Spawned workers import it: what the program of a test defines is not there for them.
ROWS = """
import os
import torch
import torch.distributed as dist
import muster

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, i):
        return torch.tensor([float(i), os.getpid()])

def try_all(number):
    # In a forked worker the group is the parent's; in a spawned one there is none.
    assert dist.is_initialized() == (os.environ["HOW"] == "fork")
    for call in (lambda: dist.all_reduce(torch.ones(1)), dist.barrier, lambda: dist.all_reduce(torch.ones(1), async_op=True).wait()):
        try:
            call()
        except (RuntimeError, ValueError) as error:
            assert os.environ["HOW"] == "spawn" or isinstance(error.__cause__, muster.ForkedError), repr(error)
        else:
            raise AssertionError("a worker has taken part")
"""


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_the_workers_of_a_data_loader_do_not_disturb_the_cluster(env, version, how, tmp_path):
    """Those of one loader end while their rank goes on, those of another live on to the end of the program."""
    (tmp_path / "rows.py").write_text(ROWS)
    succeed_silently({**env, "PYTHONPATH": f"{tmp_path}:{env['PYTHONPATH']}", "HOW": how}, version, """
        import os
        from torch.utils.data import DataLoader, DistributedSampler
        from rows import Rows, try_all
        rank, size = begin()
        how, rows, pids = os.environ["HOW"], Rows(), set()
        def load(**named):
            sampler = DistributedSampler(rows, size, rank, shuffle=False)
            return DataLoader(rows, 4, sampler=sampler, num_workers=2, multiprocessing_context=how, **named)
        def step(batch, pending):
            pids.update(batch[:, 1].int().tolist())
            total = batch[:, 0].sum()
            dist.all_reduce(total)
            pending.append((dist.all_reduce(x := total.clone(), async_op=True), x, size * total))
            return total.item()
        pending = []
        for loader in (load(worker_init_fn=try_all), load(persistent_workers=True)):
            for epoch in range(2 if loader.persistent_workers else 1):
                assert sum(step(batch, pending) for batch in loader) == sum(range(32))
        for work, x, right in pending:
            work.wait()
            assert x.item() == right
        assert len(pids) == 4 and os.getpid() not in pids
        dist.barrier()
        if rank == 0:       # the other leaves it to the end of the program
            dist.destroy_process_group()
    """)


def test_what_goes_on_in_the_parent_never_ends_in_a_forked_child(env, version):
    succeed_silently(env, version, """
        import os, muster
        rank, size = begin()
        ended, pending = dist.barrier(async_op=True), dist.irecv(x := torch.zeros(1), 1 - rank)
        ended.wait()
        if os.fork() == 0:
            try:
                assert ended.wait()
                for call in (pending.wait, pending.get_future):
                    try:
                        call()
                        os._exit(3)
                    except dist.DistBackendError as error:
                        assert isinstance(error.__cause__, muster.ForkedError), repr(error)
                os._exit(0)
            finally:
                os._exit(2)
        assert os.wait()[1] == 0
        dist.barrier()
        dist.send(torch.ones(1), 1 - rank)
        assert pending.wait() and x.item() == 1
        dist.destroy_process_group()
    """)


def test_a_child_that_is_forked_while_another_thread_has_the_locks_waits_for_none_of_them(env, version):
    succeed_silently(env, version, """
        import os, signal, threading
        from muster.torch import _backend, _work
        works, real = [], _work.Work.start
        _work.Work.start = lambda work, *words: works.append(work) or real(work, *words)
        rank, size = begin()
        with_future, without = (dist.all_reduce(torch.ones(1), async_op=True) for _ in range(2))
        with_future.get_future()
        for work in (with_future, without):
            work.wait()
        backend, = _backend._alive
        has_them, has_forked = threading.Event(), threading.Event()
        def hold():
            with backend._starting, works[0]._lock, works[1]._lock:
                has_them.set()
                has_forked.wait(60)
        holder = threading.Thread(target=hold)
        holder.start()
        assert has_them.wait(60)
        if os.fork() == 0:
            try:
                signal.alarm(60)  # ends a child that waits
                for call in (dist.barrier, lambda: dist.barrier(async_op=True).wait()):
                    error = told(call)
                    assert error["error"] == "DistBackendError" and "fork" in error["sentence"], error
                for work in (with_future, without):
                    assert work.get_future().wait()[0].tolist() == [2.0]
                os._exit(0)
            finally:
                os._exit(2)
        status = os.wait()[1]
        has_forked.set()
        holder.join()
        assert status == 0 and without.get_future().wait()[0].tolist() == [2.0]
        dist.barrier()
        dist.destroy_process_group()
    """)


def test_a_worker_of_a_data_loader_that_is_killed_ends_the_wait_of_its_rank(env, version):
    """Torch's handler of SIGCHLD raises then, as that of Ctrl-C does. The others hear of it."""
    with Ranks(python(version), """
        import os, signal, threading
        from torch.utils.data import DataLoader, TensorDataset
        rank, size = begin()
        if rank == 0:
            loader = DataLoader(TensorDataset(torch.arange(8.0)), num_workers=2, multiprocessing_context="fork", persistent_workers=True)
            assert len(list(loader)) == 8
            victim = loader._iterator._workers[0].pid
            threading.Timer(0.2, os.kill, (victim, signal.SIGKILL)).start()  # most of the time the rank waits by then
            dist.barrier()
        say(**told(dist.recv, torch.zeros(1), src=0))
        dist.destroy_process_group()
    """, env) as running:
        zero, one = running.wait(TIMEOUT_S)
        assert (zero.returncode, one.returncode) == (1, 0)
        assert re.search(r"RuntimeError: DataLoader worker \(pid \d+\) is killed by signal: Killed", zero.stderr)
        heard = rf"{INTERRUPTED.format(0, 'barrier')}|rank 0 .* aborted the job .* is killed by signal: Killed"
        assert said(one)["error"] == "DistBackendError" and re.search(heard, said(one)["sentence"]), said(one)


def interrupt(rank, name):
    """Ctrl-C where the rank waits."""
    rank.wait_for(f'"waits": "{name}"', TIMEOUT_S)
    time.sleep(0.2)  # most of the time it then waits inside the call; just before it, the test holds as well
    rank.signal(signal.SIGINT)


BLOCKING = {
    "barrier": "dist.barrier(group)",
    "allreduce": "dist.all_reduce(torch.ones(3), group=group)",
    "allgather": "dist.all_gather_into_tensor(torch.ones(6), torch.ones(3), group=group)",
    "barrier with a time-out": "dist.barrier(group, timeout=timedelta(seconds=600))",
    # Behind a call that has had a time-out of its own, all others on the group start in another way.
    "barrier after one with a time-out": "dist.barrier(group)",
}


def calls_of_rank_0(answer):
    """Those in which it waits, by group and number."""
    row, = (row for row in answer["nodes"] if row["rank"] == 0)
    return {(call["group"], call["sequence"]) for call in row["calls"]}


def test_ctrl_c_ends_a_call_that_waits_and_the_others_hear_of_it(env, version):
    """The call's group is over then; the next has one of its own. Rank 1 does not come to the call, and waits for a message."""
    calls = ", ".join(f"{name!r}: lambda group: {call}" for name, call in BLOCKING.items())
    with Ranks(python(version), f"calls = {{{calls}}}" + """
from datetime import timedelta
from muster.torch import _joining
rank, size = begin()
if rank == 0:
    say(port=int(_joining._schedulers[0].address.rpartition(":")[2]))
for name, call in calls.items():
    group = dist.new_group()
    if "after" in name:
        dist.barrier(group, timeout=timedelta(seconds=600))
    if rank == 0:
        try:
            call(group)
            raise AssertionError("has not waited")
        except KeyboardInterrupt:
            say(interrupted=name)
    say(**{name: told(dist.recv, torch.zeros(1), src=1 - rank, group=group)})
dist.barrier()
dist.destroy_process_group()
""", env) as running:
        port, over = int(running.workers[0].wait_for(r'"port": (\d+)', TIMEOUT_S)[1]), set()
        for name in BLOCKING:
            number = 2 if "after" in name else 1
            answer = until_told(port, lambda told: number in {its for _, its in calls_of_rank_0(told) - over}, f"waits in {name}")
            over |= calls_of_rank_0(answer)
            running.workers[0].signal(signal.SIGINT)
            running.workers[0].wait_for(f'"interrupted": "{name}"', ENDS_S)
            running.workers[1].wait_for(f'"{name}": ', ENDS_S)
        for words in map(said, running.succeed(TIMEOUT_S)):
            for name in BLOCKING:
                assert words[name]["error"] == "DistBackendError"
                assert re.search(INTERRUPTED.format(0, name.split()[0]), words[name]["sentence"]), (name, words[name])


WORKS = ("all_reduce", "irecv", "irecv with a time-out")


def test_ctrl_c_ends_the_wait_for_a_work_but_not_the_work(env, version):
    with Ranks(python(version), """
        from datetime import timedelta
        rank, size = begin()
        x, y, limit = torch.tensor([rank + 1.0]), torch.zeros(2), timedelta(seconds=600)
        if rank == 0:
            reduced, received = dist.all_reduce(x, async_op=True), dist.irecv(y, src=1, tag=5)
            waits = {"all_reduce": reduced.wait, "irecv": received.wait, "irecv with a time-out": lambda: received.wait(limit)}
            for name, wait in waits.items():
                try:
                    say(waits=name)
                    wait()
                    raise AssertionError("has not waited")
                except KeyboardInterrupt:
                    say(interrupted=name)
            dist.send(torch.ones(1), 1)  # now the other comes
            assert reduced.wait() and received.wait() and y.tolist() == [7.0] * 2
        else:
            dist.recv(torch.zeros(1), 0)
            dist.all_reduce(x)
            dist.send(torch.full((2,), 7.0), 0, tag=5)
        assert x.item() == 3
        dist.barrier()
        dist.destroy_process_group()
    """, env) as running:
        for name in WORKS:
            interrupt(running.workers[0], name)
            running.workers[0].wait_for(f'"interrupted": "{name}"', ENDS_S)
        running.succeed(TIMEOUT_S)


@pytest.mark.parametrize("call", ["dist.barrier()", "dist.all_reduce(torch.ones(3), async_op=True).wait()"], ids=["a call", "a work"])
@pytest.mark.parametrize("at", [0, 1])
def test_ctrl_c_that_ends_a_program_is_the_others_reason(env, version, call, at):
    """Rank 0 hosts the scheduler."""
    with Ranks(python(version), f"""
        rank, size = begin()
        if rank == {at}:
            say(waits="all")
            {call}
        say(**told(dist.recv, torch.zeros(1), src={at}))
    """, env, ranks=3) as running:
        interrupt(running.workers[at], "all")
        for rank, process in enumerate(running.wait(TIMEOUT_S)):
            if rank == at:
                assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in process.stderr, process.describe()
                continue
            assert process.returncode == 0, process.describe()
            words = said(process)
            assert words["error"] == "DistBackendError"
            heard = rf"{INTERRUPTED.format(at, 'barrier')}|rank {at} .* aborted the job .*KeyboardInterrupt"
            assert re.search(heard, words["sentence"]), words


CHILDREN = """
import json
import multiprocessing
import sys
import torch
import torch.distributed as dist

def child(rank, file):
    dist.init_process_group("muster", init_method=f"file://{file}", rank=rank, world_size=2)
    if rank == 1:
        raise ValueError("my own fault")
    try:
        dist.barrier()
    except dist.DistBackendError as error:
        print(json.dumps({"heard": str(error)}), flush=True)

if __name__ == "__main__":
    how, file = sys.argv[1:]
    if how == "torch":
        processes = torch.multiprocessing.spawn(child, [file], nprocs=2, join=False).processes
    else:
        processes = [multiprocessing.get_context(how).Process(target=child, args=[rank, file]) for rank in range(2)]
        for process in processes:
            process.start()
    for process in processes:
        process.join()
    print(json.dumps({"codes": [process.exitcode for process in processes], "is_late": sys.version_info >= (3, 13)}))
"""


@pytest.mark.parametrize("how", ["torch", "spawn", "fork"])
def test_an_exception_that_ends_a_child_of_multiprocessing_is_the_others_reason(env, version, how, tmp_path):
    """Python 3.13 ends such a child when it has handled the exception: to the others it has left."""
    program = tmp_path / "children.py"
    program.write_text(CHILDREN)
    with Process([python(version), program, how, tmp_path / "store"], {**env, "OMP_NUM_THREADS": 1}) as process:
        assert process.wait(TIMEOUT_S) == 0, process.describe()
        words = said(process)
    assert words["codes"] == [0, 1] and ("has left" if words["is_late"] else "ValueError: my own fault") in words["heard"], words
