# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Workloads in PyTorch. Lives for the whole measurement: reads the name of a workload from its input,
runs it for some time, and prints iterations per second; two of these, with and without the
interposer, take turns."""

import os
import sys
import time

# Both of a pair on the same two cores: one waits while the other runs, and cores are not all alike.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[2:4] or os.sched_getaffinity(0))

import torch  # noqa: E402: its threads are to be there as well
from torch import nn  # noqa: E402


class Block(nn.Module):
    """ResNet's basic block, so that torchvision need not be there."""

    def __init__(self, inside, outside, stride):
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outside)
        same = stride == 1 and inside == outside
        self.around = nn.Identity() if same else nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        y = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(y)) + self.around(x))


def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for outside, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inside, outside, stride), Block(outside, outside, 1)]
        inside = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def training():
    net = resnet18().cuda().to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(128, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (128,), device="cuda")

    def step():
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimiser.step()

    return step


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


def small_kernels():
    net = nn.Sequential(*[layer for _ in range(16) for layer in (nn.Linear(256, 256), nn.ReLU())]).cuda()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.001, foreach=False)
    x = torch.randn(64, 256, device="cuda")

    def step():
        optimiser.zero_grad(set_to_none=True)
        net(x).square().mean().backward()
        optimiser.step()

    return step


def rate(step, seconds):
    torch.cuda.synchronize()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        count += 5
    return count / (time.perf_counter() - begin)


works = {"training": training(), "graph_replay": graph_replay(), "small_kernels": small_kernels()}
for work in works.values():
    rate(work, 1.0)
print("ready", flush=True)
for line in sys.stdin:
    name, seconds = line.split()
    print(f"{rate(works[name], float(seconds)):.4f}", flush=True)
