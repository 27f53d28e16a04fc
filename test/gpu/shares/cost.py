# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""What a share costs that is never used up: single launches, and a program that is bound by them."""

import os
import statistics
import subprocess
import time

from ground import Step, Worker
from report import error_of_median
from singles import judge, show

UNCAPPED, CAPPED = 0, 99
CAPPED_AT = {"mlp": 90, "decode": 99}  # programs that do not use so much
LAUNCHES = (("null launch", "launch"), ("cuLaunchKernelEx", "launch_ex"), ("graph launch, 10 nodes", "graph"))
CALL_TURNS = 5  # short ones in a round of calls
SLICE_S = 0.2  # short: what a core gives changes from one moment to the next
CORES = 2  # of a set of processes
SETS = 4


def ask(p, question):
    p.stdin.write(question + "\n")
    p.stdin.flush()
    answer = p.stdout.readline().strip()
    return None if answer.startswith("error") or not answer else float(answer) / 1000


def calls(g, rounds):
    values = {q: [[], [], []] for _, q in LAUNCHES}
    for _ in range(3):  # no two processes are quite alike
        trio = [subprocess.Popen([os.path.join(g.programs, "micro"), "2"], env=g.environment(step), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=g.log, text=True) for step in (None, Step(g, UNCAPPED), Step(g, CAPPED))]
        try:
            if any([p.stdout.readline().strip() != "ready" for p in trio]):
                raise RuntimeError("micro did not start (see --out)")
            for _, q in LAUNCHES:
                for _ in range(CALL_TURNS * rounds):
                    for i in range(3):
                        got = ask(trio[i], q)
                        if got is not None:
                            values[q][i].append(got)
        finally:
            for p in trio:
                p.kill()
                p.wait()
    rows = []
    for title, q in LAUNCHES:
        plain, free, capped = values[q]
        if not plain or not free or not capped:
            rows.append((title, "-", "-", "-", "not in this driver"))
            continue
        native = statistics.median(plain)
        more = [statistics.median(a - b for a, b in zip(ours, plain)) for ours in (free, capped)]
        verdict = judge((more[0] > 0.040 or more[0] > 0.02 * native, "uncapped"), (more[1] > 0.3, "capped"))
        rows.append((title, f"{native:.3f}", f"{more[0]:+.3f}", f"{more[1]:+.3f}", verdict))
        g.keep("cost", call=q, native_us=native, uncapped_us=more[0], capped_us=more[1], verdict=verdict)
    g.table(f"Launches, us (medians, in turns; capped: at {CAPPED}, which they do not use up)",
            ("call", "native", "uncapped", "capped", "verdict"), rows)


class Programs:
    """The same program without the interposer, with it, under a share that it does not use up, and once more without; all on
    the same cores, of which another set of them has others."""

    def __init__(self, g, name, share, cpus):
        self.g, self.rates = g, [[], [], [], []]
        self.workers = [Worker(g, [name], step, cpus=cpus) for step in (None, Step(g, UNCAPPED), Step(g, share), None)]

    def warm_up(self):
        for w in self.workers:
            w.go()
            w.stop()

    def round(self):
        """In the same order each time: nobody is to have two turns one after the other, with caches that are warm."""
        for worker, rates in zip(self.workers, self.rates):
            worker.go()
            time.sleep(SLICE_S / 2)
            begin, end = self.g.window(SLICE_S)
            worker.stop()
            rates.append(worker.page.rate(begin, end))

    def of_native(self):
        """Percent of what the two natives around it did: uncapped, capped, and one native of the other."""
        first, free, capped, last = self.rates
        if min(first + last) <= 0:
            return [0.0, 0.0, 0.0]
        return [100 * statistics.median(2 * o / (a + b) for o, a, b in zip(ours, first, last)) for ours in (free, capped)] + [
            100 * statistics.median(b / a for a, b in zip(first, last))]

    def close(self):
        for w in self.workers:
            w.close()


def judged(g, name, share, sets):
    """Of the sets that were asked. No two processes are quite alike, so what differs between sets is the error."""
    native = statistics.median(v for s in sets for v in s.rates[0] + s.rates[3])
    found = list(zip(*[s.of_native() for s in sets]))
    free, capped, other = [statistics.median(f) for f in found]
    error = [error_of_median(f) for f in found]
    verdict = judge((free < 99.5, "uncapped"), (capped < 99.5, "capped"))
    g.keep("cost", load=name, share=share, native=native, sets=found, verdict=verdict)
    return (name, show(native), len(sets), f"{free:.2f} +- {error[0]:.2f} %", f"at {share}: {capped:.2f} +- {error[1]:.2f} %",
            f"{other:.2f} +- {error[2]:.2f} %", verdict)


def throughput(g, name, rounds, rows):
    if g.o.loads is not None and name not in g.o.loads:
        return
    share = CAPPED_AT[name]
    cpus = sorted(os.sched_getaffinity(0))
    room = [cpus[c:c + CORES] for c in range(2, len(cpus) - CORES + 1, CORES)][:SETS] or [cpus]
    sets, asked = [Programs(g, name, share, own) for own in room], []
    for s in sets:
        s.warm_up()
    try:
        for s in sets:
            for _ in range(rounds):
                s.round()
            asked.append(s)
    finally:
        if asked:
            rows.append(judged(g, name, share, asked))
    for s in sets:
        s.close()


def cost(g):
    rounds = max(5, g.o.rounds)
    if os.path.exists(os.path.join(g.programs, "micro")):
        calls(g, rounds)
    rows = []
    try:
        for name in CAPPED_AT:
            throughput(g, name, max(8, g.o.rounds), rows)
    finally:
        if rows:
            g.table("Throughput of programs that do not use their share up, of native",
                    ("load", "native /s", "sets", "uncapped", "capped", "another native", "verdict"), rows)
