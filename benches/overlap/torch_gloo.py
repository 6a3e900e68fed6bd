"""Times PyTorch's all_reduce with async_op on Gloo, as `muster bench iallreduce` times ours: under `muster run` or torchrun.

    torch_gloo.py BYTES ...

Rank 0 prints a line per size, as benches/overlap/mpi.c does.
"""

import sys
import time

import torch
import torch.distributed as dist


def compute(seconds):
    begun, number = time.perf_counter(), 1.0
    while time.perf_counter() - begun < seconds:
        for _ in range(64):
            number = number * 0.999 + 0.001
    return time.perf_counter() - begun


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ranks, rank = dist.get_world_size(), dist.get_rank()

    def mean_of_all(mine):
        all_of_them = torch.tensor([mine], dtype=torch.float64)
        dist.all_reduce(all_of_them)
        return all_of_them.item() / ranks

    def timed(call, times):
        took = 0.0
        for _ in range(times):
            dist.barrier()
            begun = time.perf_counter()
            call()
            took += time.perf_counter() - begun
        return mean_of_all(took / times)

    for size in map(int, sys.argv[1:]):
        buffer, computed = torch.zeros(size // 4), 0.0

        def overlapped(seconds=0.0):
            nonlocal computed
            work = dist.all_reduce(buffer, async_op=True)
            if seconds:
                computed += compute(seconds)
            work.wait()

        times = torch.tensor([min(max(0.25 / timed(overlapped, 5), 5), 20000)])
        dist.broadcast(times, 0)
        times = int(times.item())
        alone, wait = timed(lambda: dist.all_reduce(buffer), times), timed(overlapped, times)
        computed = 0.0
        overall = timed(lambda: overlapped(wait), times)
        own = mean_of_all(computed / times)
        overlap = min(max(100 - 100 * (overall - own) / wait, 0), 100)
        if rank == 0:
            print(f"{size},{times},{alone * 1e6:.2f},{wait * 1e6:.2f},{own * 1e6:.2f},{overall * 1e6:.2f},{overlap:.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
