# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""What a share costs that is never used up: single launches, and a program that is bound by them."""

import os
import statistics
import subprocess
import time

from ground import Step, Worker
from singles import judge, show

UNCAPPED, CAPPED = 0, 99
LAUNCHES = (("null launch", "launch"), ("cuLaunchKernelEx", "launch_ex"), ("graph launch, 10 nodes", "graph"))
SLICE_S = 0.5


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
                for r in range(rounds):
                    for i in ((0, 1, 2), (2, 1, 0))[r % 2]:
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


def throughput(g, rounds):
    """The same program without the interposer, with it, and under a share that it does not use up."""
    rows = []
    cpus = sorted(os.sched_getaffinity(0))
    cpus = cpus[2:6] if len(cpus) >= 6 else cpus
    for name, share in (("mlp", 90), ("decode", 99)):
        if g.o.loads is not None and name not in g.o.loads:
            continue
        workers = [Worker(g, [name], step, cpus=cpus) for step in (None, Step(g, UNCAPPED), Step(g, share))]
        for w in workers:
            w.go()
            w.stop()
        rates = [[], [], []]
        for r in range(rounds):
            for i in ((0, 1, 2), (2, 1, 0))[r % 2]:
                workers[i].go()
                time.sleep(0.15)
                begin, end = g.window(SLICE_S)
                workers[i].stop()
                rates[i].append(workers[i].page.rate(begin, end))
        for w in workers:
            w.close()
        native = statistics.median(rates[0])
        of = [0.0, 0.0]
        if min(rates[0]) > 0:
            of = [100 * (1 + statistics.median((a - b) / b for a, b in zip(ours, rates[0]))) for ours in rates[1:]]
        spread = 100 * (max(rates[0]) - min(rates[0])) / native if native else None
        rows.append((name, show(native), show(spread, 1, " %"), show(of[0], 2, " %"), f"at {share}: {of[1]:.2f} %",
                     judge((of[0] < 99.5, "uncapped"), (of[1] < 99.5, "capped"))))
        g.keep("cost", load=name, share=share, native=native, of_native=of, native_spread=spread, verdict=rows[-1][-1])
    if rows:
        g.table("Throughput of programs that do not use their share up", ("load", "native /s", "its spread", "uncapped", "capped", "verdict"), rows)


def cost(g):
    rounds = max(5, g.o.rounds)
    if os.path.exists(os.path.join(g.programs, "micro")):
        calls(g, rounds)
    throughput(g, max(7, g.o.rounds))
