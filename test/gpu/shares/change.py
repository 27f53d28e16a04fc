# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""How soon a new share is in force on a running job, and how much more than that it gets meanwhile."""

import bisect
import time

from ground import SETTLE_S, Step, Worker
from loads import LOADS
from pairs import UIDS
from singles import POINT, judge, show

TURN_MS = 10.0
WATCH_S = 2.6
STEPS = ((25, 75), (75, 10), (10, 90), (90, 25))


def in_force_ms(share_of, begin):
    """From when on the mean of a second is right; None: not within the time watched."""
    for late_ms in range(0, int((WATCH_S - 1) * 1000), 20):
        if share_of(begin + late_ms * 10**6, begin + (late_ms + 1000) * 10**6) <= POINT:
            return late_ms
    return None


def excess_ms(ends, piece_us, begin, share):
    """The most work since the change that the new share did not cover."""
    first, most = bisect.bisect_right(ends, begin), 0.0
    for i in range(first, bisect.bisect_right(ends, begin + int(WATCH_S * 1e9))):
        most = max(most, (i - first + 1) * piece_us / 1e3 - (ends[i] - begin) / 1e6 * share / 100)
    return most


def by_count(w, begin, share):
    """From completed pieces of known length: when in force, and the excess."""
    piece_us = LOADS[w.names[0]].piece_us
    ends, _ = w.page.ends()

    def off(a, b):
        # A piece that is cut by an edge makes no difference: at most one of a second's thousand.
        return abs((bisect.bisect_right(ends, b) - bisect.bisect_right(ends, a)) * piece_us * 1e5 / (b - a) - share)

    return in_force_ms(off, begin), excess_ms(ends, piece_us, begin, share)


def by_nvml(g, begin, share):
    g.witness.wait(begin + int(WATCH_S * 1e9))

    def off(a, b):
        seen = g.witness.mean(a, b)
        return 100.0 if seen is None else abs(seen - g.bias - share)

    return in_force_ms(off, begin), None


def change(g):
    rows = []
    for name in ("spin", "matmul_bf16"):
        step = Step(g, STEPS[0][0])
        w = Worker(g, [name], step).go()
        time.sleep(SETTLE_S)
        for old, new in STEPS:
            time.sleep(0.5)
            begin = step.set(new)
            time.sleep(WATCH_S + 0.1)
            counted = LOADS[name].piece_us != 0
            late, excess = by_count(w, begin, new) if counted else by_nvml(g, begin, new)
            fine = " ".join(str(v) for _, v in g.witness.fine(begin, begin + int(1.4e9)))
            verdict = judge((late is None or late > 1000, "not in force in 1 s"), (excess is not None and excess > TURN_MS, "overshoot"))
            rows.append((LOADS[name].title, f"{old} to {new}", show(late, 0), show(excess), fine, verdict))
            g.keep("change", load=name, old=old, new=new, in_force_ms=late, excess_ms=excess, nvml=fine, verdict=verdict)
        w.close()
    g.table(f"A new share on a running job (in force: from then on the mean of a second is within {POINT:.0f} point)",
            ("load", "share", "in force after ms", "above the new share at most, ms", "NVML samples after", "verdict"), rows)


def elastic(g):
    """Two jobs that share what is left over: the second comes and goes."""
    folder = g.turns_folder()
    steps = [Step(g, share, folder=folder, uid=uid, elastic=True) for share, uid in zip((30, 70), UIDS)]
    first, second = (Worker(g, ["spin"], s).ready() for s in steps)
    rows = []

    def look(what, wanted, begin):
        time.sleep(1.6)
        seen = []
        for w in (first, second):
            ends, _ = w.page.ends()
            a, b = begin + 500 * 10**6, begin + 1500 * 10**6
            seen.append((bisect.bisect_right(ends, b) - bisect.bisect_right(ends, a)) / 10)
        verdict = judge(*((abs(s - x) > POINT + 2 * (x == 100), f"{who} has not {x}") for s, x, who in zip(seen, wanted, ("first", "second"))))
        return (what, *(show(s) for s in seen), "/".join(map(str, wanted))), verdict

    def add(cells, extra, verdict):
        rows.append((*cells, extra, verdict))
        g.keep("elastic", what=cells[0], seen=cells[1:3], extra=extra, verdict=verdict)

    first.go()
    time.sleep(SETTLE_S)
    cells, verdict = look("30 elastic, the other idle", (100, 0), time.monotonic_ns())
    add(cells, "-", verdict)
    begin = time.monotonic_ns()
    second.go()
    cells, verdict = look("the other (70) returns", (30, 70), begin)
    ends, _ = second.page.ends()
    at = bisect.bisect_right(ends, begin)
    add(cells, f"first piece after {(ends[at] - begin) / 1e6:.1f} ms" if at < len(ends) else "no piece", verdict)
    begin = time.monotonic_ns()
    second.stop()
    cells, verdict = look("the other rests again", (100, 0), begin)
    add(cells, "-", verdict)
    g.table("Elastic slices of 30 and 70, by counted work, from 0.5 to 1.5 s after each change",
            ("what", "first %", "second %", "wanted", "", "verdict"), rows)
