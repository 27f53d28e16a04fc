# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""How long a request of 5 ms takes, alone and beside a job that always has work."""

import time

from ground import SETTLE_S, Step, Worker
from loads import LOADS
from pairs import UIDS
from singles import judge, show

BATCH = "matmul_bf16"
TARGET = 1.5  # times its p99 alone under the same share


def percentile(values, percent):
    return values[min(len(values) - 1, int(len(values) * percent / 100))] if values else None


def latency(g):
    folder = g.turns_folder()
    steps = [Step(g, 50, folder=folder, uid=uid) for uid in UIDS]
    native, limited = Worker(g, [BATCH]), Worker(g, [BATCH], steps[1])
    for w in (native, limited):
        w.go()
        w.stop()
    rows = []
    for name in ("request", "request_40"):
        p99 = {}
        for what, step, batch in (("no limit, alone", None, None), ("at 50, alone", steps[0], None), ("beside a batch job, no limits", None, native),
                                  ("at 50, beside a batch job at 50", steps[0], limited)):
            w = Worker(g, [name], step).go()
            if batch:
                batch.go()
            time.sleep(SETTLE_S)
            begin, end, _ = g.window(max(g.o.seconds, 3))
            took, rate = w.page.took_ms(begin, end), w.page.rate(begin, end)
            batch_rate = batch.page.rate(begin, end) if batch else None
            w.close()
            if batch:
                batch.stop()
            p99[what] = percentile(took, 99)
            verdict = ""
            if batch is limited:
                alone, sliced = p99["at 50, alone"], p99["beside a batch job, no limits"]
                verdict = judge((not took or alone is None, "no requests were answered"),
                                (bool(took and alone) and p99[what] > TARGET * alone, f"p99 over {TARGET} of alone"),
                                (bool(took and sliced) and p99[what] >= sliced, "p99 not below time-slicing's"))
            rows.append((LOADS[name].title, what, show(rate), show(percentile(took, 50), 2), show(p99[what], 2), show(took[-1] if took else None, 2),
                         show(batch_rate), verdict))
            g.keep("latency", load=name, what=what, rate=rate, p50=percentile(took, 50), p99=p99[what], batch_rate=batch_rate, verdict=verdict)
    g.table("Requests (ms)", ("requests", "where", "per second", "p50", "p99", "longest", "batch pieces/s", "verdict"), rows)
