# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Workloads in PyTorch: torch_work.py NAME[,NAME...] CORE. Lives for the whole measurement: reads the name of a workload
from its input, runs it for some time, and prints iterations per second; several of these, with and without the interposer,
take turns."""

import os
import sys
import time

# All of a set on the same two cores: one runs while the others wait, and cores are not all alike.
core = int(sys.argv[2])
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[core:core + 2] or os.sched_getaffinity(0))

import torch  # noqa: E402: its threads are to be there as well
from torch import nn  # noqa: E402

import nets  # noqa: E402: beside this file


def graph_replay():
    net = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(20)]).cuda().bfloat16()
    x = torch.randn(1024, 4096, device="cuda", dtype=torch.bfloat16)
    side = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            net(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        net(x)
    return graph.replay


def rate(step, seconds):
    for _ in range(5):  # somebody else had the core and the GPU
        step()
    torch.cuda.synchronize()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        count += 5
    return count / (time.perf_counter() - begin)


def decode():
    return nets.decode(layers=8)  # it is made on the host, by many processes at once


makers = {"training": nets.training, "graph_replay": graph_replay, "small_kernels": nets.small_kernels, "decode": decode}
works = {name: makers[name]() for name in sys.argv[1].split(",")}
for work in works.values():
    rate(work, 1.0)
print("ready", flush=True)
for line in sys.stdin:
    name, seconds = line.split()
    print(f"{rate(works[name], float(seconds)):.4f}", flush=True)
