# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""A program that is measured: program_work.py MODULE NAME[,NAME...] CORE. Lives for the whole measurement, and does nothing
but when it is told to on its input: "NAME CORES BEFORE STEPS" takes so many steps of a workload after some that are not
counted, on that many cores (0: on all), and prints seconds."""

import importlib
import os
import sys
import time

module, names, core = sys.argv[1], sys.argv[2].split(","), int(sys.argv[3])
all_cores = sorted(os.sched_getaffinity(0))


def bind(cores):
    """All threads: as a job step of so many cores."""
    to = set(all_cores) if cores == 0 else {all_cores[(core + i) % len(all_cores)] for i in range(cores)}
    for tid in os.listdir("/proc/self/task"):
        try:
            os.sched_setaffinity(int(tid), to)
        except ProcessLookupError:
            pass


class Work:
    def __init__(self, made):
        self.step, self.wait = made

    def take(self, steps):
        for _ in range(steps):
            self.step()
        self.wait()


works = {}
makers = importlib.import_module(module).makers
for name in names:
    works[name] = Work(makers[name]())
    works[name].take(3)
print("ready", flush=True)
bound = None
for line in sys.stdin:
    name, cores, before, steps = line.split()
    try:
        if bound != (bound := int(cores)):
            bind(bound)
        works[name].take(int(before))
        begin = time.perf_counter()
        works[name].take(int(steps))
        print(f"{time.perf_counter() - begin:.9f}", flush=True)
    except Exception as e:  # noqa: BLE001: whatever a framework says is for the table
        print("error", " ".join(str(e).split())[:200], flush=True)
