# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Two GPUs of one job that train together under unequal shares."""

import os
import subprocess
import sys
import time

from ground import START_S, Page, Step, metered, now_ns
from singles import POINT, judge, show

SHARES = (30, 70)


def one_run(g, step):
    """What both GPUs did while it ran, by NVML's samples and its counters, and what the library says of the first."""
    g.workers += 1
    page = Page(os.path.join(g.folder, f"page{g.workers}"), 0)
    p = subprocess.Popen([sys.executable, os.path.join(g.programs, "torch_collective.py"), "--page", page.path], env=g.environment(step),
                         stdin=subprocess.PIPE, stdout=g.log, stderr=g.log, start_new_session=True)
    try:
        give_up = time.monotonic() + START_S
        while page.words[0] < 5:
            if time.monotonic() > give_up or p.poll() is not None:
                raise RuntimeError(f"no five steps in {START_S} s (see --out)" if p.poll() is None else f"ended with {p.returncode} (see --out)")
            time.sleep(0.05)
        time.sleep(1.0)
        before = step.meter() if step else None
        begin, end, gpm = g.window(g.o.seconds)
        after = step.meter() if step else None
        g.witness.wait(end)
        own = metered(before, after) if step else None
        rate = page.rate(begin, end)
        p.stdin.close()
        asked = now_ns()
        status = p.wait(60)
        return rate, [g.witness.mean(begin, end, gpu) for gpu in (0, 1)], gpm[:2], own, status, (now_ns() - asked) / 1e9
    finally:
        if p.poll() is None:
            os.killpg(p.pid, 9)
            p.wait()


def row(g, what, step):
    limits = [100, 100] if step is None else [int(s) for s in what.split("/")]
    try:
        rate, seen, gpm, own, status, end_s = one_run(g, step)
    except (RuntimeError, subprocess.TimeoutExpired) as e:
        return (what, *["-"] * 7, f"BROKEN: {str(e)[:100]}")
    verdict = judge((status != 0, f"exit status {status}"), (rate == 0, "no steps"),
                    *((s is None or (f if f is not None else s - g.bias) > x + POINT, f"GPU {i} over")
                      for i, (s, f, x) in enumerate(zip(seen, gpm, limits))))
    return (what, show(rate, 2), *(show(s) for s in seen), *(show(f, 2) for f in gpm), show(own), show(end_s), verdict)


def collective(g):
    if len(g.witness.uuids) < 2 or g.o.sim:
        print("shares: collective: this needs two GPUs and PyTorch", file=g.progress)
        return
    rows = []
    try:
        for what, step in (("no limits", None), ("50/50", Step(g, "50,50", gpus=2)),
                           ("{}/{}".format(*SHARES), Step(g, "{},{}".format(*SHARES), gpus=2))):
            rows.append(row(g, what, step))
            g.keep("collective", what=what, row=rows[-1])
    finally:
        g.table("Training on two GPUs with NCCL (ResNet-18 by DDP, and an all_reduce of 256 MiB each step)",
                ("shares", "steps/s", "GPU 0 NVML %", "GPU 1 NVML %", "GPU 0 GPM %", "GPU 1 GPM %", "GPU 0 own meter %", "end after s", "verdict"), rows)
