# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""One job alone on the GPU: each workload under each share, several processes, a fresh start."""

import statistics
import time

from ground import SETTLE_S, Step, Worker, metered
from loads import LOADS, SINGLES

POINT, SPREAD, USED, KEEPER = 1.0, 3.0, 0.98, 2.0  # the targets
BY_CPU = 95  # what keeps the GPU busy for less is bound by the CPU, which is not equally fast all the time
HELD_BACK_MS = 10  # a second, of what leaves some of its share
FIRST_POINTS = 2.0  # of each of the first seconds


def show(value, digits=1, unit=""):
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def judge(*faults):
    """Faults as pairs: whether it is one, and its name."""
    words = [name for wrong, name in faults if wrong]
    return "met" if not words else "MISSED: " + ", ".join(words)


class Measure:
    """What was seen of running workers of one step in one window."""

    def __init__(self, g, seconds, workers, step=None, gpu=0, known_us=0):
        meter, keepers = step.meter() if step else None, [w.keeper_ns() for w in workers]
        self.begin, self.end, gpm = g.window(seconds)
        self.gpm = gpm[gpu]
        after = step.meter() if step else None
        self.keeper = [100 * (w.keeper_ns() - k) / (self.end - self.begin) for w, k in zip(workers, keepers) if k is not None]
        g.witness.wait(self.end)
        self.witness = g.witness.mean(self.begin, self.end, gpu)
        means = g.witness.seconds(self.begin, self.end, gpu)
        self.spread = 100 * statistics.stdev(means) / statistics.mean(means) if len(means) > 1 and statistics.mean(means) > 0 else None
        self.range = max(means) - min(means) if means else None
        self.rates = [w.page.rate(self.begin, self.end) for w in workers]
        self.rate = sum(self.rates)
        piece_us = LOADS[workers[0].names[0]].piece_us or known_us
        self.counted = self.rate * piece_us / 1e4 if piece_us else None
        self.copies = LOADS[workers[0].names[0]].copies
        self.piece_points = piece_us / 1e4  # what one piece is of a second
        self.one_piece = self.piece_points / seconds  # and of this window
        self.meter = self.waited = None
        if step:
            self.meter, self.waited = metered(meter, after), 1000 * (after[1] - meter[1]) / (after[2] - meter[2])

    def facts(self):
        return {k: v for k, v in vars(self).items() if k not in ("begin", "end")}

    def verdict(self, target, bias, native_rate=None):
        """NVML's word, less what it is off by; whether all was used by the GPU's counters or, where it has none, by counted work:
        both are finer. Pieces are not divided: a window, or a second, may have one more or less."""
        seen = self.counted if self.copies else None if self.witness is None else self.witness - bias
        gpm = None if self.copies else self.gpm
        finer = gpm if gpm is not None else self.counted if self.one_piece < 0.1 else None
        used = seen if finer is None else finer
        within = max(POINT, self.one_piece)
        return judge((self.rate == 0, "no work was done"), (seen is None, "the witness saw nothing"),
                     (native_rate is not None and self.rate < USED * native_rate, "slowed"),
                     (any(x is not None and abs(x - target) > within for x in (seen, gpm)), "off the share"),
                     (used is not None and used > target + within, "over"),
                     (self.spread is not None and self.spread > SPREAD and self.range > self.piece_points, "spread"),
                     (used is not None and used < USED * target - self.one_piece, "not all used"),
                     (bool(self.keeper) and max(self.keeper) > KEEPER, "keeper's CPU"))


HEADER = ("load", "share", "NVML %", "GPM %", "counted %", "spread %", "range", "own meter %", "rate /s", "of native x share", "waited ms/s",
          "keeper %", "verdict")


def row(title, share, m, verdict, native_rate=None, target=None):
    of_native = 100 * m.rate / (native_rate * target / 100) if native_rate and target else None
    return (title, share, show(m.witness), show(m.gpm, 2), show(m.counted), show(m.spread), show(m.range), show(m.meter), show(m.rate, 1),
            show(of_native, 1, " %"), show(m.waited), show(max(m.keeper), 2) if m.keeper else "-", verdict)


def witness(g):
    """How far off NVML is where the truth is known."""
    rows, off = [], []
    for name in ("duty_10", "duty_25", "duty_75"):
        w = Worker(g, [name]).go()
        time.sleep(0.5)
        m = Measure(g, max(2.0, g.o.seconds / 2), [w])
        w.close()
        if m.witness is not None:
            off.append(m.witness - m.counted)
        rows.append((LOADS[name].title, show(m.counted, 2), show(m.witness, 2), show(m.gpm, 2), show(m.witness and m.witness - m.counted, 2)))
        g.keep("witness", load=name, **m.facts())
    g.bias = statistics.median(off) if off else 0.0
    if abs(g.bias) > 0.6:  # no rounding explains that: do not hide it
        g.bias = 0.0
    g.table(f"The witness against known shares (all verdicts take {g.bias:+.2f} off)", ("load", "counted %", "NVML %", "GPM %", "off"), rows, judged=False)


def native_run(g, native, name):
    native.go(name)
    time.sleep(SETTLE_S / 2)
    m = Measure(g, max(2.0, g.o.seconds / 2), [native])
    native.stop()
    return m


def below_its_share(m, share, bias, surely):
    """Of work that leaves some of its share: never more than that, and, where it surely does, not held back. How fast it is by
    that ../bench.sh tells, by processes in short turns: what the CPU bounds is not equally fast in two seconds, nor in two processes."""
    return judge((m.rate == 0, "no work was done"), (m.witness is None, "the witness saw nothing"),
                 (m.witness is not None and not m.copies and m.witness - bias > share + POINT, "over"),
                 (m.copies and m.counted > share + POINT, "over"),
                 (surely and m.waited is not None and m.waited > HELD_BACK_MS, "held back"), (bool(m.keeper) and max(m.keeper) > KEEPER, "keeper's CPU"))


def one_load(g, native, name):
    load, ours, step = LOADS[name], g.ours[name], g.ours[name].step
    step.set(90)
    ours.go()  # prepares and warms up
    ours.stop()
    base = native_run(g, native, name)
    rows = [row(load.title, "native", base, "")]
    g.keep("single", load=name, share=None, **base.facts())
    nvml = 100.0 if base.witness is None else base.witness - g.bias
    busy = base.counted if load.copies else nvml if base.gpm is None else base.gpm
    known_us = 1e4 * busy / base.rate if load.steady and base.witness is not None and base.rate > 0 else 0
    idle = None
    around = [base, base]
    for share in g.o.shares:
        step.set(share)
        ours.go()
        time.sleep(SETTLE_S)
        m = Measure(g, g.o.seconds, [ours], step, known_us=known_us)
        target = min(share, busy)
        if busy < BY_CPU:
            ours.stop()
            around = [around[1], native_run(g, native, name)]
            ours.go()
        least, most = (busy * of(n.rate for n in around) / base.rate if base.rate > 0 else busy for of in (min, max))
        if least > share:
            verdict = m.verdict(target, g.bias)
        else:
            target = least
            verdict = below_its_share(m, share, g.bias, most < share)
        rows.append(row(load.title, share, m, verdict, base.rate, 100 * target / busy if busy > 0 else None))
        g.keep("single", load=name, share=share, target=target, verdict=rows[-1][-1], **m.facts())
    ours.stop()
    time.sleep(0.2)
    before = ours.keeper_ns()
    if before is not None:
        begin, end, _ = g.window(0.5)
        idle = 100 * (ours.keeper_ns() - before) / (end - begin)
        g.keep("single", load=name, keeper_idle=idle)
    ours.close()
    return rows, idle


def single(g):
    names = [n for n in LOADS if n in (g.o.loads or SINGLES)]
    torch = [n for n in names if LOADS[n].torch and not g.o.sim]
    shared = Worker(g, torch) if torch else None  # one process without the interposer has them all
    g.ours = {}
    for n in names:
        g.ours[n] = Worker(g, [n], Step(g, 90))
    rows, idles = [], []
    try:
        for n in names:
            g.ours[n].ready()
        for n in names:
            native = shared if n in torch else Worker(g, [n])
            try:
                more, idle = one_load(g, native, n)
                rows += more
                idles.append(idle)
            except (RuntimeError, OSError) as e:
                rows.append((LOADS[n].title, *["-"] * (len(HEADER) - 2), f"BROKEN: {str(e)[:100]}"))
                g.ours[n].close()
            if native is not shared:
                native.close()
            print(f"shares: {n}: at {time.monotonic() - g.begin:.0f} s", file=g.progress, flush=True)
    finally:
        g.table("One job alone under a share (spread: standard deviation of 1 s means, in percent of the mean; "
                "range: their largest less smallest, in points)",
                HEADER, rows)
    seen = [i for i in idles if i is not None]
    if seen:
        g.table("CPU of the interposer's thread while the program is idle", ("percent of a core, highest", "verdict"),
                [(f"{max(seen):.2f}", judge((max(seen) > 0.1, "not idle")))])


def processes(g):
    rows = []
    for count in (1, 2, 4, 8):
        step = Step(g, 30)
        workers = [Worker(g, ["spin"], step) for _ in range(count)]
        for w in workers:
            w.ready()
        for w in workers:
            w.go()
        time.sleep(SETTLE_S)
        m = Measure(g, g.o.seconds, workers, step)
        each = " ".join(f"{r * LOADS['spin'].piece_us / 1e4:.1f}" for r in m.rates)
        rows.append((count, show(m.witness), show(m.gpm, 2), show(m.counted), show(m.spread), show(m.meter), each,
                     show(max(m.keeper), 2) if m.keeper else "-", m.verdict(30, g.bias)))
        g.keep("processes", count=count, verdict=rows[-1][-1], **m.facts())
        for w in workers:
            w.close()
    g.table("Processes of one job under 30",
            ("processes", "NVML %", "GPM %", "counted %", "spread %", "own meter %", "each, counted %", "keeper %", "verdict"), rows)


def fresh(g):
    """A process that starts under its share: the first seconds of its work."""
    rows = []
    for name, share in (("queue", 25), ("spin", 50), *(() if g.o.sim else (("matmul_bf16", 25),))):
        step = Step(g, share)
        w = Worker(g, [name], step).go()
        if w.torch:
            begin = time.monotonic_ns()
        else:
            while w.page.words[0] == 0 and w.process.poll() is None:
                time.sleep(0.001)
            begin = time.monotonic_ns()
        time.sleep(3.05)
        end = begin + 3 * 10**9
        g.witness.wait(end)
        seen = g.witness.seconds(begin, end)
        piece_us = LOADS[name].piece_us
        counted = []
        if piece_us:
            counted = [w.page.rate(begin + i * 10**9, begin + (i + 1) * 10**9) * piece_us / 1e4 for i in range(3)]
        used = counted or [s - g.bias for s in seen]
        w.close()
        verdict = judge((not used, "nothing was seen"), (any(u > share + FIRST_POINTS for u in used), "over"),
                        (any(u < share - FIRST_POINTS for u in used), "under"))
        rows.append((LOADS[name].title, share, " ".join(f"{s:.1f}" for s in seen), " ".join(f"{c:.1f}" for c in counted) or "-", verdict))
        g.keep("fresh", load=name, share=share, nvml=seen, counted=counted, verdict=verdict)
    g.table(f"Fresh starts: the first three seconds, each within {FIRST_POINTS:.0f} points",
            ("load", "share", "NVML %", "counted %", "verdict"), rows)
