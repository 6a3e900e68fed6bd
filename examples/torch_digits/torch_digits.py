#!/usr/bin/env python3
"""Trains a small network on 1,797 digits with PyTorch's DistributedDataParallel, over muster or another backend.

    muster run --worker_num 4 --local_worker_num 4 --join True torch_digits.py DIGITS.csv
    torchrun --nproc-per-node 4 torch_digits.py DIGITS.csv --backend gloo
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BATCH = 64  # of all ranks together


def read(path):
    """Pixels from 0 to 1, and the digit that each row shows."""
    with open(path) as file:
        rows = torch.tensor([[float(word) for word in line.split(",")] for line in file if line[0].isdigit()])
    return rows[:, :-1] / 16, rows[:, -1].long()


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("digits")
    words.add_argument("--backend", default="muster")
    words.add_argument("--epochs", type=int, default=5)
    words.add_argument("--width", type=int, default=128, help="of the hidden layer; a wider one has more gradients to sum")
    options = words.parse_args()
    torch.set_num_threads(1)

    dist.init_process_group(options.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    images, digits = read(options.digits)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, options.width), torch.nn.ReLU(), torch.nn.Linear(options.width, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    steps, began = 0, time.perf_counter()
    for epoch in range(options.epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        total = torch.zeros(1)
        for batch in order.split(BATCH)[:-1]:
            mine = batch[rank::size]
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[mine]), digits[mine])
            loss.backward()
            optimizer.step()
            total += loss.detach()
            steps += 1
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / size / (len(images) // BATCH):.6f}", flush=True)
    if rank == 0:
        print(f"{options.backend}: {1000 * (time.perf_counter() - began) / steps:.2f} ms a step on {size} ranks", flush=True)
    dist.destroy_process_group()


main()
