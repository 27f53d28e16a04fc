# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Two jobs of two users on one GPU, and what one loses when the other is stopped or killed."""

import os
import signal
import statistics
import time

from ground import SETTLE_S, Step, Worker, metered, traced
from loads import LOADS
from singles import POINT, Measure, judge, show

UIDS = (65533, 65534)
SPLITS = ((30, 70), (50, 50), (10, 90))
COMBOS = (("spin", "spin"), ("spin", "long"), ("matmul_bf16", "training"), ("training", "decode_graph"), ("matmul_bf16", "matmul_bf16"))
TOGETHER = 97
AFTER_S = 3.0  # of what happens after a signal


class Pair:
    """Two processes without the interposer and two jobs under it, which can do any of these works."""

    def __init__(self, g, firsts, seconds):
        folder = g.turns_folder()
        self.steps = [Step(g, 50, folder=folder, uid=uid) for uid in UIDS]
        self.native = [Worker(g, names) for names in (firsts, seconds)]
        self.ours = [Worker(g, names, step) for names, step in zip((firsts, seconds), self.steps)]

    def go(self, workers, names):
        for w, name in zip(workers, names):
            w.go(name)

    def stop(self, workers):
        for w in workers:
            w.stop()

    def close(self):
        for w in (*self.native, *self.ours):
            w.close()


class Both:
    """What both did in one window, and the GPU."""

    def __init__(self, g, seconds, workers, steps=()):
        before = [s.meter() for s in steps]
        self.begin, self.end, self.gpm = g.window(seconds)
        after = [s.meter() for s in steps]
        g.witness.wait(self.end)
        self.witness = g.witness.mean(self.begin, self.end)
        self.rates = [w.page.rate(self.begin, self.end) for w in workers]
        self.meters = [metered(b, a) for b, a in zip(before, after)]
        spans = range(self.begin, self.end - 10**9 + 1, 10**9)
        self.spreads = []
        for w in workers:
            each = [w.page.rate(t, t + 10**9) for t in spans]
            self.spreads.append(100 * statistics.stdev(each) / statistics.mean(each) if len(each) > 1 and statistics.mean(each) > 0 else None)

    def shares(self, solo):
        """Of their own throughput alone, in percent."""
        return [100 * r / s if s else 0.0 for r, s in zip(self.rates, solo)]


def slashed(values):
    return "/".join(show(v) for v in values or ()) or "-"


def one_pair(g, pair, names):
    for w, name in zip((*pair.native, *pair.ours), names * 2):  # prepare and warm up, one after another
        w.go(name)
        w.stop()
    solo, busy, alone = [], [], []
    for w, name in zip(pair.native, names):
        w.go(name)
        time.sleep(SETTLE_S / 2)
        m = Measure(g, max(2.0, g.o.seconds / 2), [w])
        alone += traced([w], m.rates) or []
        w.stop()
        solo.append(m.rate)
        busy.append(m.gpm if m.gpm is not None else 100.0 if m.witness is None else min(100.0, m.witness - g.bias))
    pair.go(pair.native, names)
    time.sleep(SETTLE_S / 2)
    sliced = Both(g, max(2.0, g.o.seconds / 2), pair.native)
    pair.stop(pair.native)
    title = " + ".join(LOADS[n].title for n in names)
    x, y = sliced.shares(solo)
    rows = [(title, "native", show(x), show(y), show(x + y), slashed(alone), show(sliced.witness), show(sliced.gpm[0], 2), "-", slashed(sliced.spreads), "")]
    g.keep("pairs", loads=names, split=None, solo=solo, busy=busy, traced=alone, shares=[x, y], **vars(sliced))
    for split in SPLITS:
        for step, share in zip(pair.steps, split):
            step.set(share)
        if split is SPLITS[0]:
            pair.go(pair.ours, names)
        time.sleep(SETTLE_S)
        b = Both(g, g.o.seconds, pair.ours, pair.steps)
        x, y = b.shares(solo)
        times = traced(pair.ours, b.rates)
        if times:  # by what the same records say where the GPU's own counters know how much it is
            times = [t * full / a for t, full, a in zip(times, busy, alone)]
        off = [(abs(s - min(share, full)) > POINT, f"{who} off its share")
               for s, share, full, who in zip(times or (x, y), split, busy, ("first", "second"))]
        verdict = judge(*off, (x + y < TOGETHER, "together"))
        rows.append((title, f"{split[0]}/{split[1]}", show(x), show(y), show(x + y), slashed(times), show(b.witness), show(b.gpm[0], 2),
                     slashed(b.meters), slashed(b.spreads), verdict))
        g.keep("pairs", loads=names, split=split, traced=times, shares=[x, y], verdict=verdict, **vars(b))
    pair.stop(pair.ours)
    return rows


def pairs(g):
    wanted = [c for c in COMBOS if g.o.pairs is None or "+".join(c) in g.o.pairs]
    torch = [c for c in wanted if LOADS[c[0]].torch and not g.o.sim]
    rows = []
    try:
        shared = Pair(g, [c[0] for c in torch], [c[1] for c in torch]) if torch else None
        for names in wanted:
            pair = shared if names in torch else Pair(g, [names[0]], [names[1]])
            try:
                rows += one_pair(g, pair, names)
            except (RuntimeError, OSError) as e:
                rows.append((" + ".join(LOADS[n].title for n in names), *["-"] * 9, f"BROKEN: {str(e)[:100]}"))
            if pair is not shared:
                pair.close()
            print(f"shares: {'+'.join(names)}: at {time.monotonic() - g.begin:.0f} s", file=g.progress, flush=True)
    finally:
        g.table("Two jobs on one GPU: work done, in percent of the same alone without the interposer. Judged by their kernels' times where\n"
                "CUPTI tells what they are for a piece, else by the work done (native: what it says of each alone, which the others are\n"
                "set right by)",
                ("loads", "shares", "first", "second", "together", "kernels %", "NVML %", "GPM %", "own meters %", "spread %", "verdict"), rows)


class Neighbours:
    """Two jobs with 1 ms kernels at 50 each; the second can be started again."""

    def __init__(self, g):
        self.g, self.folder = g, g.turns_folder()
        self.steps = [Step(g, 50, folder=self.folder, uid=uid) for uid in UIDS]
        self.first, self.second = (Worker(g, ["spin"], s) for s in self.steps)
        for w in (self.first, self.second):
            w.go()
        time.sleep(SETTLE_S)

    def again(self):
        self.second.close()
        self.second = Worker(self.g, ["spin"], self.steps[1]).go()
        time.sleep(SETTLE_S)

    def send(self, number):
        """At no particular moment of a turn; the first one's share in what follows, and its longest wait for a piece."""
        time.sleep(0.1 + time.monotonic_ns() % 23 / 1000)
        begin = time.monotonic_ns()
        os.kill(self.second.process.pid, number)
        end = begin + int(AFTER_S * 1e9)
        time.sleep(AFTER_S + 0.05)
        ends, _ = self.first.page.ends()
        inside = [begin, *(e for e in ends if begin < e <= end), end]
        return self.first.page.done(begin, end) / AFTER_S / 10, max(b - a for a, b in zip(inside, inside[1:])) / 1e6


def faults(g):
    n = Neighbours(g)
    rows = []

    def row(what, shares, waits, back=None):
        worst = max(abs(s - 50) for s in shares)
        verdict = judge((worst > POINT, "off its share"), (back is not None and min(back) < 50 - POINT, "the other is not back"))
        rows.append((what, " ".join(show(s) for s in shares), show(max(0, 50 - min(shares)) * AFTER_S * 10, 0), show(max(waits), 1),
                     " ".join(show(b) for b in back) if back else "-", verdict))
        g.keep("faults", what=what, shares=shares, longest_wait_ms=waits, back=back, verdict=verdict)

    begin, end, _ = g.window(AFTER_S)
    row("both run", [n.first.page.done(begin, end) / AFTER_S / 10], [0])
    shares, waits, back = [], [], []
    for _ in range(g.o.rounds):
        share, wait = n.send(signal.SIGSTOP)
        os.kill(n.second.process.pid, signal.SIGCONT)
        time.sleep(SETTLE_S)
        begin, end, _ = g.window(1.0)
        shares.append(share)
        waits.append(wait)
        back.append(n.second.page.rate(begin, end) / 10)
    row("SIGSTOP", shares, waits, back)
    shares, waits = [], []
    for r in range(g.o.rounds):
        share, wait = n.send(signal.SIGKILL)
        shares.append(share)
        waits.append(wait)
        if r + 1 < g.o.rounds:
            n.again()
    row("SIGKILL", shares, waits)
    g.table(f"What is left of a job's 50 % in the {AFTER_S:.0f} s after its neighbour (50 as well) got a signal",
            ("signal", "its share, by count", "lost at most, ms", "longest wait for a 1 ms piece, ms", "the other's after SIGCONT", "verdict"), rows)
