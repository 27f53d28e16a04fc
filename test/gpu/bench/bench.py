# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Measures with and without the interposer in turns, and compares the medians; see bench.sh."""

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from report import table  # noqa: E402: beside this folder

LIMIT_SHARE = 0.9  # of the GPU: nothing here is to meet a limit
ROUNDS = 5  # at least


def options():
    p = argparse.ArgumentParser(prog="bench.sh", description="What the interposer costs on a real GPU.")
    p.add_argument("--build", required=True, help=argparse.SUPPRESS)
    p.add_argument("--library", default=os.path.join(HERE, "../../../build/libslurm-vgpu.so"), help="the interposer")
    p.add_argument("--only", default="calls,torch,import,start", help="which measurements, comma-separated (all)")
    p.add_argument("--gpu", metavar="UUID", help="which GPU (the first)")
    p.add_argument("--rounds", type=int, default=ROUNDS, help=f"for each set of processes, or pair of runs ({ROUNDS} or more)")
    p.add_argument("--budget", type=float, default=60, metavar="S", help="for each of import and start, after five rounds (60)")
    p.add_argument("--least", type=int, default=ROUNDS, help=f"rounds of import and start, whatever the budget ({ROUNDS})")
    p.add_argument("--sets", type=int, default=3, help="of processes that measure calls and workloads (3)")
    p.add_argument("--works", default="", metavar="TEXT", help="only calls and workloads whose name has this text")
    p.add_argument("--processes", type=int, default=64, help="that start at once (64)")
    p.add_argument("--out", metavar="FOLDER", help="keep all single values there")
    return p.parse_args()


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

    def environment(self, ours):
        e = dict(os.environ, CUDA_VISIBLE_DEVICES=self.uuid, PYTHONDONTWRITEBYTECODE="1")
        e.pop("LD_PRELOAD", None)
        if ours:
            self.jobs += 1
            made = subprocess.run([os.path.join(self.o.build, "mkstep"), "--dir", self.folder, "--gpu", self.uuid, "--mem",
                                   str(int(self.device_mib * LIMIT_SHARE)), "--device-mem", str(self.device_mib), "--job", str(self.jobs)],
                                  check=True, capture_output=True, text=True)
            e.update(LD_PRELOAD=os.path.abspath(self.o.library), VGPU_STEP_DIR=made.stdout.strip())
        return e

    def resident(self, command):
        """The same program without and with the interposer, and once more without: how alike two processes are."""
        trio = [subprocess.Popen(command, env=self.environment(ours), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                for ours in (False, True, False)]
        for p in trio:
            said = p.stdout.readline().strip()
            if said != "ready":
                raise RuntimeError(f"{command[0]} said: {said or 'nothing'}")
        return trio

    def turns(self, trio, question, rounds):
        """Values of each; who is first changes with every round. None: cannot be asked."""
        values = ([], [], [])
        for r in range(rounds):
            for i in ((0, 1, 2), (2, 1, 0))[r % 2]:
                trio[i].stdin.write(question + "\n")
                trio[i].stdin.flush()
                answer = trio[i].stdout.readline().strip()
                if answer.startswith("error") or not answer:
                    return None
                values[i].append(float(answer))
        return values

    def row(self, what, values, unit, scale, target, met, as_share=False):
        """met judges the native median and what ours is by the median of the rounds' differences."""
        if not values or not values[1]:
            self.rows.append((what, "-", "-", "-", "-", "-", target, "not in this driver" if values is None else "no time left"))
            return
        plain, with_us, *others = ([v * scale for v in part] for part in values)
        for who, part in (("native", plain), ("ours", with_us), *(("native twin", other) for other in others)):
            self.raw.append("\t".join([what, who, unit] + [f"{v:.4f}" for v in part]))
        native = statistics.median(plain)
        added = statistics.median(o - n for n, o in zip(plain, with_us))
        spread = 100 * (max(plain) - min(plain)) / native
        shown = f"{100 * (native + added) / native:.2f} % of native" if as_share else f"{added:+.3f} {unit}, {100 * added / native:+.2f} %"
        twin = f"{100 * statistics.median(o - n for n, o in zip(plain, others[0])) / native:+.2f} %" if others else "-"
        self.rows.append((what, f"{native:.3f} {unit}", f"{statistics.median(with_us):.3f} {unit}", shown, twin, f"{spread:.1f} %", target,
                          ("met" if met(native, native + added) else "MISSED") + ("" if len(with_us) >= ROUNDS else f", {len(with_us)} rounds only")))


def over_sets(b, command, values):
    """Values of each question, from several sets of processes as no two processes are quite alike. Those of a set that
    is cut short are there all the same."""
    for _ in range(b.o.sets if values else 0):
        trio = b.resident(command)
        for q in values:
            got = b.turns(trio, q, max(ROUNDS, b.o.rounds))
            if got is None:
                values[q] = None
            elif values[q] is not None:
                for all_of, new in zip(values[q], got):
                    all_of.extend(new)
        for p in trio:
            p.stdin.close()
            p.wait()


def unasked(rows):
    return {row[1]: ([], [], []) for row in rows}


def calls(b):
    def launch(native, ours):
        return ours <= native * 1.02 and ours <= native + 0.040

    rows = (
        ("null launch", "launch", "<= +2 % and <= +0.040 us", launch),
        ("cuLaunchKernelEx", "launch_ex", "<= +2 % and <= +0.040 us", launch),
        ("graph launch, 10 nodes", "graph", "<= +2 % and <= +0.040 us", launch),
        ("cuMemAllocAsync + cuMemFreeAsync", "alloc_async", "<= +0.1 us", lambda native, ours: ours <= native + 0.1),
        ("the same, 5 000 live blocks", "alloc_async_5000", "<= +0.1 us", lambda native, ours: ours <= native + 0.1),
        ("cuStreamSynchronize, idle, with a pool", "sync", "<= +0.040 us", lambda native, ours: ours <= native + 0.04),
        ("cuMemAlloc + cuMemFree, 2 MiB", "alloc", "<= +1 %", lambda native, ours: ours <= native * 1.01),
        ("cuMemGetInfo", "mem_info", "not slower", lambda native, ours: ours <= native),
    )
    rows = [row for row in rows if b.o.works in row[0]]
    values = unasked(rows)
    try:
        over_sets(b, [os.path.join(b.o.build, "micro"), "2"], values)
    finally:
        for what, question, target, met in rows:
            b.row(what, values[question], "us", 0.001, target, met)


def torch(b):
    rows = (("ResNet-18 training, batch 128", "training 0.5"), ("CUDA graph replay, 20 layers", "graph_replay 0.5"),
            ("small-kernel MLP", "small_kernels 0.5"))
    rows = [row for row in rows if b.o.works in row[0]]
    values = unasked(rows)
    try:
        over_sets(b, [sys.executable, os.path.join(HERE, "torch_work.py")], values)
    finally:
        for what, question in rows:
            b.row(what, values[question], "/s", 1, ">= 99.5 % of native", lambda native, ours: ours >= 0.995 * native, as_share=True)


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


def first_kernel(b):
    def run(ours):
        text = "import torch; (torch.ones(8, device='cuda') + 1).sum().item()"
        subprocess.run([sys.executable, "-c", text], env=b.environment(ours), check=True)

    values = ([], [])
    try:
        run(True)  # whoever is first reads it all from the disk
        timed(b, run, values)
    finally:
        b.row("import torch + first kernel", values, "ms", 1000, "<= +20 ms", lambda native, ours: ours <= native + 20)


def start(b):
    def run(ours):
        e = b.environment(ours)
        procs = [subprocess.Popen([os.path.join(b.o.build, "start")], env=e) for _ in range(b.o.processes)]
        if any([p.wait() != 0 for p in procs]):
            raise RuntimeError("a process that started with the others failed")

    values = ([], [])
    try:
        timed(b, run, values)
    finally:
        # The driver makes contexts one after another anyway; a lock of ours would add its share for each.
        b.row(f"{b.o.processes} processes at once", values, "s", 1, "no lock of ours: <= +5 %", lambda native, ours: ours <= native * 1.05)


def main():
    o = options()
    b = Bench(o)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was measured so far is still printed
    parts = {"calls": calls, "torch": torch, "import": first_kernel, "start": start}
    try:
        for name in o.only.split(","):
            from_s = time.monotonic()
            try:
                parts[name](b)
            except (RuntimeError, subprocess.SubprocessError, OSError) as e:
                b.rows.append((name, "-", "-", "-", "-", "-", "-", f"BROKEN: {str(e)[:120]}"))
            print(f"bench: {name}: {time.monotonic() - from_s:.0f} s", file=sys.stderr)
    finally:
        table("What the interposer costs (medians, with and without in turns)",
              ("what", "native", "ours", "difference", "another native", "native spread", "target", "verdict"), b.rows)
        if o.out is not None:
            os.makedirs(o.out, exist_ok=True)
            with open(os.path.join(o.out, "bench.tsv"), "w") as to:
                to.write("\n".join(b.raw) + "\n")
        shutil.rmtree(b.folder, ignore_errors=True)
    sys.exit(1 if any(r[-1] != "met" for r in b.rows) else 0)


main()
