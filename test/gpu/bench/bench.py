# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Measures with and without the interposer in turns, and compares the medians; see bench.sh."""

import argparse
import dataclasses
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import typing

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import programs  # noqa: E402: beside this file
from report import error_of_median, stop_when_told, table  # noqa: E402: beside this folder

LIMIT_SHARE = 0.9  # of the GPU's memory: nothing here is to meet a limit
UNUSED_BY_CALLS, UNUSED_BY_PROGRAMS = 99, 90  # caps that are not used up
ROUNDS = 5  # at least
CALL_TURNS = 5  # short ones in a round of calls: what a core gives changes from one moment to the next
CORES = 2  # of each set of processes
NATIVE, OURS, CAPPED, TWIN = "native", "ours", "ours that holds a cap", "another native"
AT_ONCE = 4  # sets of processes that are there at once, and have the GPU's memory among them


def options():
    p = argparse.ArgumentParser(prog="bench.sh", description="What the interposer costs on a real GPU.")
    p.add_argument("--build", required=True, help=argparse.SUPPRESS)
    p.add_argument("--library", default=os.path.join(HERE, "../../../build/libslurm-vgpu.so"), help="the interposer")
    p.add_argument("--only", default="calls,torch,programs,import,start", help="which measurements, comma-separated (all)")
    p.add_argument("--gpu", metavar="UUID", help="which GPU (the first)")
    p.add_argument("--rounds", type=int, default=ROUNDS, help=f"for each set of processes, more where they are short ({ROUNDS} or more)")
    p.add_argument("--budget", type=float, default=60, metavar="S", help="for each of import and start, after five rounds (60)")
    p.add_argument("--least", type=int, default=ROUNDS, help=f"rounds of import and start, whatever the budget ({ROUNDS})")
    p.add_argument("--sets", type=int, default=4, help="of processes that measure calls and workloads (4)")
    p.add_argument("--works", type=lambda t: t.split(","), metavar="TEXT,TEXT", help="only calls, workloads and starts whose name has one of these")
    p.add_argument("--processes", type=int, default=64, help="that start at once (64)")
    p.add_argument("--program-sets", type=int, default=4, help="of processes that measure programs (4)")
    p.add_argument("--seconds", type=float, default=24, metavar="S", help="for each program on each number of cores, by all sets (24)")
    p.add_argument("--on-cores", type=lambda t: [int(n) for n in t.split(",")], default=[0, 1, 2], metavar="N,N",
                   help="on which the programs are bound, 0: on none (0,1,2)")
    p.add_argument("--other", metavar="LIBRARY", help="another build, measured beside the first with the programs")
    p.add_argument("--out", metavar="FOLDER", help="keep all single values there")
    return p.parse_args()


@dataclasses.dataclass(frozen=True)
class Asked:
    what: str
    question: str
    target: str
    met: typing.Callable  # by what a native one has, and ours
    times: int = 1  # in each round: those that the CPU bounds are asked in short turns, see CALL_TURNS
    capped: tuple = ()  # target and met where the library holds a cap that it does not use up, as where a driver refuses vgpud


class Bench:
    def __init__(self, o):
        self.o = o
        self.folder = tempfile.mkdtemp(prefix="vgpu-bench-")
        os.chmod(self.folder, 0o755)
        smi = subprocess.run(["nvidia-smi", "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits"],
                             check=True, capture_output=True, text=True).stdout.splitlines()
        self.uuid, device_mib = next(f for f in (line.split(", ") for line in smi) if o.gpu in (None, f[0]))
        self.device_mib = int(device_mib)
        self.jobs = 0
        self.raw = []
        self.rows = []
        self.program_rows = []

    def wanted(self, what):
        return self.o.works is None or any(text in what for text in self.o.works)

    def environment(self, ours, cores=0, library=None):
        e = dict(os.environ, CUDA_VISIBLE_DEVICES=self.uuid, PYTHONDONTWRITEBYTECODE="1")
        e.pop("LD_PRELOAD", None)
        if ours:
            self.jobs += 1
            node = os.path.join(self.folder, f"node{self.jobs}")
            os.mkdir(node, 0o755)
            made = subprocess.run([os.path.join(self.o.build, "mkstep"), "--dir", node, "--gpu", self.uuid, "--mem",
                                   str(int(self.device_mib * LIMIT_SHARE)), "--device-mem", str(self.device_mib), "--job", str(self.jobs),
                                   "--cores", str(cores)], check=True, capture_output=True, text=True)
            e.update(LD_PRELOAD=os.path.abspath(library or self.o.library), VGPU_STEP_DIR=made.stdout.strip())
        return e

    def resident(self, command, core, share):
        """The same program without the interposer, with it, with it where it holds a cap, and once more without: how alike
        two processes are."""
        return {who: subprocess.Popen([*command, str(core)], env=self.environment(ours, cores), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      text=True)
                for who, ours, cores in ((NATIVE, False, 0), (OURS, True, 0), (CAPPED, True, share), (TWIN, False, 0))}

    def turns(self, processes, asked, rounds):
        """Values of each; None: cannot be asked. Always in the same order: going there and back, those at the ends would have
        two turns one after the other, and find the second one's caches warm. That makes the middle one of three equal
        processes look 2 % slower, with turns of 40 ms."""
        values = {who: [] for who in processes if who != CAPPED or asked.capped}
        for _ in range(rounds * asked.times):
            for who, all_of in values.items():
                p = processes[who]
                p.stdin.write(asked.question + "\n")
                p.stdin.flush()
                answer = p.stdout.readline().strip()
                if answer.startswith("error") or not answer:
                    return None
                all_of.append(float(answer))
        return values

    def missing(self, what, target, why):
        self.rows.append((what, "-", "-", "-", "-", "-", "-", target, why))

    def keep(self, what, unit, scale, who, values):
        self.raw.append("\t".join([what, who, unit] + [f"{v * scale:.4f}" for v in values]))

    def judged(self, what, unit, native, ours, added, error, other, target, met, as_share, enough=True):
        """added: what ours takes more than native, give or take error; other: a second native process, in percent."""
        middle = statistics.median(native)
        spread = 100 * (max(native) - min(native)) / middle
        if as_share:
            shown, give_or_take = f"{100 * (middle + added) / middle:.2f} % of native", f"{100 * error / middle:.2f} %"
        else:
            shown, give_or_take = f"{added:+.3f} {unit}, {100 * added / middle:+.2f} %", f"{error:.3f} {unit}"
        self.rows.append((what, f"{middle:.3f} {unit}", f"{statistics.median(ours):.3f} {unit}", shown, give_or_take,
                          "-" if other is None else f"{other:+.2f} %", f"{spread:.1f} %", target,
                          ("met" if met(middle, middle + added) else "MISSED") + ("" if enough else ", too few rounds")))

    def rows_of_sets(self, asked, sets, share, unit, scale, as_share=False):
        """Each set gives the median of its rounds' differences; no two processes are quite alike, so their spread is the error."""
        rows = [(OURS, asked.what, asked.target, asked.met)]
        if asked.capped:
            rows.append((CAPPED, f"the same, holding a cap of {share} %", *asked.capped))
        for who, what, target, met in rows:
            if not sets:
                self.missing(what, target, "not in this driver" if sets is None else "no time left")
                continue
            added = [scale * statistics.median(o - (n + t) / 2 for n, o, t in zip(values[NATIVE], values[who], values[TWIN])) for values in sets]
            other = statistics.median(100 * statistics.median((t - n) / n for n, t in zip(values[NATIVE], values[TWIN])) for values in sets)
            native, ours = ([v * scale for values in sets for part in whose for v in values[part]] for whose in ((NATIVE, TWIN), (who,)))
            self.judged(what, unit, native, ours, statistics.median(added), error_of_median(added), other, target, met, as_share)
        for values in sets or ():
            for who, part in values.items():
                self.keep(asked.what, unit, scale, who, part)

    def row_of_pairs(self, what, values, unit, scale, target, met):
        native, ours = ([v * scale for v in part] for part in values)
        if not ours:
            self.missing(what, target, "no time left")
            return
        added = [o - n for n, o in zip(native, ours)]
        for who, part in (("native", values[0]), ("ours", values[1])):
            self.keep(what, unit, scale, who, part)
        self.judged(what, unit, native, ours, statistics.median(added), error_of_median(added), None, target, met, False, len(ours) >= ROUNDS)


def first_cores(sets):
    """Of each set the first of its cores: of the later ones, as the first are everybody's."""
    cores = len(os.sched_getaffinity(0))
    room = max(1, (cores - CORES) // CORES)
    return [(CORES * (1 + s % room)) if cores >= 2 * CORES else 0 for s in range(sets)]


def over_sets(b, command, share, rows):
    """Values of each row from several sets of processes, which start together and are asked one after another. Those of a
    set that is cut short are there all the same."""
    values, left = {asked: [] for asked in rows}, first_cores(b.o.sets if rows else 0)
    try:
        while left:
            cores, left = left[:AT_ONCE], left[AT_ONCE:]
            sets = [b.resident(command, core, share) for core in cores]
            for p in (p for processes in sets for p in processes.values()):
                said = p.stdout.readline().strip()
                if said != "ready":
                    raise RuntimeError(f"{command[0]} said: {said or 'nothing'}")
            for asked in rows:
                for processes in sets:
                    got = b.turns(processes, asked, max(ROUNDS, b.o.rounds))
                    if got is None:
                        values[asked] = None
                    elif values[asked] is not None:
                        values[asked].append(got)
            for p in (p for processes in sets for p in processes.values()):
                p.stdin.close()
                p.wait()
    except (RuntimeError, SystemExit) as e:
        return values, e
    return values, None


def calls(b):
    def launch(what, question):
        return Asked(what, question, "<= +2 % and <= +0.040 us", lambda native, ours: ours <= native * 1.02 and ours <= native + 0.040,
                     CALL_TURNS, ("<= +0.3 us", lambda native, ours: ours <= native + 0.3))

    def other(what, question, target, met):
        return Asked(what, question, target, met, CALL_TURNS)

    rows = (
        launch("null launch", "launch"),
        launch("cuLaunchKernelEx", "launch_ex"),
        launch("graph launch, 10 nodes", "graph"),
        other("cuMemAllocAsync + cuMemFreeAsync", "alloc_async", "<= +0.1 us", lambda native, ours: ours <= native + 0.1),
        other("the same, 5 000 live blocks", "alloc_async_5000", "<= +0.1 us", lambda native, ours: ours <= native + 0.1),
        other("cuStreamSynchronize, idle, with a pool", "sync", "<= +0.040 us", lambda native, ours: ours <= native + 0.04),
        other("cuMemAlloc + cuMemFree, 2 MiB", "alloc", "<= +1 %", lambda native, ours: ours <= native * 1.01),
        other("cuMemGetInfo", "mem_info", "not slower", lambda native, ours: ours <= native),
    )
    rows = [asked for asked in rows if b.wanted(asked.what)]
    values, broken = over_sets(b, [os.path.join(b.o.build, "micro")], UNUSED_BY_CALLS, rows)
    for asked in rows:
        b.rows_of_sets(asked, values[asked], UNUSED_BY_CALLS, "us", 0.001)
    if broken:
        raise broken


def torch(b):
    judged = (">= 99.5 % of native", lambda native, ours: ours >= 0.995 * native)
    rows = (Asked("ResNet-18 training, batch 128", "training 0.5", *judged), Asked("CUDA graph replay, 20 layers", "graph_replay 0.3", *judged),
            Asked("small-kernel MLP", "small_kernels 0.04", *judged, 10, judged), Asked("decode, eager", "decode 0.04", *judged, 10, judged))
    rows = [asked for asked in rows if b.wanted(asked.what)]
    names = ",".join(asked.question.split()[0] for asked in rows)
    values, broken = over_sets(b, [sys.executable, os.path.join(HERE, "torch_work.py"), names], UNUSED_BY_PROGRAMS, rows)
    for asked in rows:
        b.rows_of_sets(asked, values[asked], UNUSED_BY_PROGRAMS, "/s", 1, as_share=True)
    if broken:
        raise broken


def many_kernels(b):
    programs.programs(b, first_cores(b.o.program_sets))


def timed(b, run, values):
    """Adds seconds of rounds in turns, --least of them and more while the budget lasts."""
    begin = time.monotonic()
    while len(values[1]) < b.o.least or time.monotonic() - begin < b.o.budget and len(values[1]) < 15:
        pair = [0, 0]
        for i in ((0, 1), (1, 0))[len(values[1]) % 2]:
            from_s = time.monotonic()
            run(bool(i))
            pair[i] = time.monotonic() - from_s
        for all_of, new in zip(values, pair):
            all_of.append(new)


def row_of_runs(b, what, run, unit, scale, target, met):
    values = ([], [])
    try:
        run(True)  # whoever is first reads it all from the disk
        timed(b, run, values)
    finally:
        b.row_of_pairs(what, values, unit, scale, target, met)


def first_kernel(b):
    text = "import torch; (torch.ones(8, device='cuda') + 1).sum().item()"
    for what, command in (("import torch + first kernel", [sys.executable, "-c", text]),
                          ("a context and an allocation, in C", [os.path.join(b.o.build, "start")])):
        if b.wanted(what):
            row_of_runs(b, what, lambda ours: subprocess.run(command, env=b.environment(ours), check=True), "ms", 1000,
                        "<= +20 ms", lambda native, ours: ours <= native + 20)


def start(b):
    def run(ours):
        e = b.environment(ours)
        procs = [subprocess.Popen([os.path.join(b.o.build, "start")], env=e) for _ in range(b.o.processes)]
        if any([p.wait() != 0 for p in procs]):
            raise RuntimeError("a process that started with the others failed")

    # The driver makes contexts one after another anyway; a lock of ours would add its share for each.
    row_of_runs(b, f"{b.o.processes} processes at once", run, "s", 1, "no lock of ours: <= +5 %", lambda native, ours: ours <= native * 1.05)


def main():
    o = options()
    b = Bench(o)
    stop_when_told()
    parts = {"calls": calls, "torch": torch, "programs": many_kernels, "import": first_kernel, "start": start}
    try:
        for name in o.only.split(","):
            from_s = time.monotonic()
            try:
                parts[name](b)
            except (RuntimeError, subprocess.SubprocessError, OSError) as e:
                b.missing(name, "-", f"BROKEN: {str(e)[:120]}")
            print(f"bench: {name}: {time.monotonic() - from_s:.0f} s", file=sys.stderr)
    finally:
        table("What the interposer costs (medians, with and without in turns)",
              ("what", "native", "ours", "difference", "+-", "another native", "native spread", "target", "verdict"), b.rows)
        if b.program_rows:
            table("Programs of many short kernels", programs.HEADER, b.program_rows)
        if o.out is not None:
            os.makedirs(o.out, exist_ok=True)
            with open(os.path.join(o.out, "bench.tsv"), "w") as to:
                to.write("\n".join(b.raw) + "\n")
        shutil.rmtree(b.folder, ignore_errors=True)
    sys.exit(1 if any(r[-1] != "met" for r in b.rows + b.program_rows) else 0)


main()
