# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""One process on each of two GPUs: training by DDP with an all_reduce of its own in each step, until
the input ends. The first writes down its steps on a page as load.c does."""

import argparse
import mmap
import os
import struct
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import nets
from torch_load import ENTRIES, HEAD_BYTES

WORLD = 2


def steps(rank, device, page, ended, batch):
    net = nets.resnet18().to(device)
    net = nn.parallel.DistributedDataParallel(net, device_ids=[rank] if device != "cpu" else None)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.001)
    images, labels = torch.randn(batch, 3, 224, 224, device=device), torch.randint(0, 1000, (batch,), device=device)
    block, last = torch.ones(1 << (26 if device != "cpu" else 10), device=device), torch.zeros(1, device=device)
    count = 0
    while True:
        begin = time.monotonic_ns()
        optimiser.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(images), labels).backward()
        optimiser.step()
        dist.all_reduce(block)
        block.div_(WORLD)
        last.fill_(1.0 if rank == 0 and ended.is_set() else 0.0)
        dist.all_reduce(last)
        over = last.item() > 0
        if page is not None:
            end = time.monotonic_ns()
            struct.pack_into("<QQ", page, HEAD_BYTES + 16 * (count % ENTRIES), end, end - begin)
            count += 1
            struct.pack_into("<Q", page, 0, count)
        if over:
            return block[0].item()


def rank_main(rank, o, meeting, ended):
    page = None
    if rank == 0:
        with open(o.page, "r+b") as f:
            page = mmap.mmap(f.fileno(), 0)
    device = f"cuda:{rank}" if o.device == "cuda" else "cpu"
    if o.device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if o.device == "cuda" else "gloo", init_method=f"file://{meeting}", rank=rank, world_size=WORLD)
    mean = steps(rank, device, page, ended, o.batch)
    dist.destroy_process_group()
    if mean != 1.0:
        sys.exit(f"rank {rank}: the mean of ones is {mean}")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--page", required=True)
    p.add_argument("--device", default="cuda", help="cpu: only to try this program")
    p.add_argument("--batch", type=int, default=64)
    o = p.parse_args()
    context = mp.get_context("spawn")
    ended = context.Event()

    def listen():
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=rank_main, args=(r, o, os.path.join(folder, "meeting"), ended)) for r in range(WORLD)]
        for r in ranks:
            r.start()
        for r in ranks:
            r.join()
        sys.exit(max(abs(r.exitcode) for r in ranks))


if __name__ == "__main__":
    main()
