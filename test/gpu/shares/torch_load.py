# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Workloads in PyTorch, done while the input says so: "make NAME" prepares one and warms it up, "go
NAME" and "stop" do what they say, and "trace SECONDS" while it goes tells how many ms the kernels of a
piece take. Done pieces are written down on a page as load.c does."""

import argparse
import collections
import mmap
import struct
import sys
import threading
import time

import torch

import nets
import torch_trace

ENTRIES, HEAD_BYTES = 1 << 17, 64  # page.h
WARM_S = 0.6
LAST = 10000  # pieces: more than are done while they are traced


def matmul(size, kind):
    def make(device):
        a, b = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
        c = torch.empty_like(a)
        return lambda: torch.mm(a, b, out=c)

    return make


def elementwise(count):
    def make(device):
        x = torch.randn(count, device=device)
        y = torch.empty_like(x)
        return lambda: torch.mul(x, 1.5, out=y)

    return make


def graph_of(make):
    """The same step as one CUDA graph."""
    def make_graph(device):
        step, side = make(device), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    return make_graph


# How to make a step, and how many may be under way.
WORKS = {
    "matmul_bf16": (matmul(8192, torch.bfloat16), 8),
    "matmul_fp32": (matmul(4096, torch.float32), 8),
    "elementwise": (elementwise(1 << 28), 16),
    "training": (nets.training, 2),
    "decode": (nets.decode, 2),
    "decode_graph": (graph_of(nets.decode), 4),
    "mlp": (nets.small_kernels, 4),
}


class OnHost:
    """Stands in for an event where there is no GPU, to try this program."""

    def record(self):
        pass

    def synchronize(self):
        pass


class Loop:
    def __init__(self, o):
        with open(o.page, "r+b") as f:
            self.page = mmap.mmap(f.fileno(), 0)
        self.device = o.device
        self.count = 0
        self.last = collections.deque(maxlen=LAST)  # when they were done
        self.works = {}
        self.wanted = collections.deque()
        self.wake = threading.Condition()

    def listen(self):
        for line in sys.stdin:
            with self.wake:
                self.wanted.append(line.split())
                self.wake.notify()
        with self.wake:
            self.wanted.append(["end"])
            self.wake.notify()

    def event(self):
        return torch.cuda.Event() if self.device == "cuda" else OnHost()

    def ends(self):
        to_time_ns = time.time_ns() - time.monotonic_ns()
        return [end + to_time_ns for end in tuple(self.last)]

    def trace(self, name, seconds):
        def work():
            give_up = time.monotonic() + seconds
            self.repeat(name, lambda: time.monotonic() > give_up)

        try:
            ms = torch_trace.piece_ms(work, self.ends)
            print(f"traced {ms:.6f}", flush=True)
        except RuntimeError as e:
            print(f"cannot trace: {e}", flush=True)

    def done(self, from_ns):
        end = time.monotonic_ns()
        struct.pack_into("<QQ", self.page, HEAD_BYTES + 16 * (self.count % ENTRIES), end, end - from_ns)
        self.count += 1
        self.last.append(end)
        struct.pack_into("<Q", self.page, 0, self.count)

    def make(self, name):
        make, deep = WORKS[name]
        step = make(self.device)
        self.works[name] = (step, [self.event() for _ in range(deep)])
        begin = time.monotonic()
        while time.monotonic() - begin < WARM_S:
            self.repeat(name, lambda: True, count=False)
        print(f"made {name}", flush=True)

    def repeat(self, name, until, count=True):
        """At least one step, and all under way are done at the end."""
        step, events = self.works[name]
        deep, from_ns, i = len(events), [0] * len(events), 0
        while True:
            k = i % deep
            if i >= deep:
                events[k].synchronize()
                if count:
                    self.done(from_ns[k])
            from_ns[k] = time.monotonic_ns()
            step()
            events[k].record()
            i += 1
            if until():
                break
        for j in range(max(0, i - deep), i):
            events[j % deep].synchronize()
            if count:
                self.done(from_ns[j % deep])

    def go(self, name):
        while True:
            self.repeat(name, lambda: self.wanted)
            if self.wanted[0][0] != "trace":
                return
            self.trace(name, float(self.wanted.popleft()[1]))

    def run(self):
        threading.Thread(target=self.listen, daemon=True).start()
        while True:
            struct.pack_into("<Q", self.page, 8, 1)  # idle
            with self.wake:
                self.wake.wait_for(lambda: self.wanted)
                line = self.wanted.popleft()
            struct.pack_into("<Q", self.page, 8, 0)
            if line[0] == "make":
                self.make(line[1])
            elif line[0] == "go":
                self.go(line[1])
            elif line[0] == "end":
                return


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--page", required=True)
    p.add_argument("--device", default="cuda", help="cpu: only to try this program")
    o = p.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    if o.device == "cuda":
        torch.zeros(1, device="cuda")
    loop = Loop(o)
    print("ready", flush=True)
    loop.run()


if __name__ == "__main__":
    main()
