# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""What the library costs programs that launch many short kernels and stay below their share: see bench.sh. Of each set two
processes are native and one has the library, now without a share and now with one that it does not use up. All are warm, one
works while the others wait, in windows of some hundredths of a second. What a share costs is told by the one process alone:
no two are quite alike, not even native ones. With --lone there is no other: its caches are its own then, as a job's are."""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time

from pairing import estimate, ratios, rounds

HERE = os.path.dirname(os.path.abspath(__file__))
NATIVE, TWIN, FREE, CAPPED = "native", "another native", "no share", "under a share"
FREE_OTHER, CAPPED_OTHER = "no share, other build", "under a share, other build"
BEFORE_S, WINDOW_S = 0.025, 0.03  # somebody else had the core and the GPU, and another one's keeper looks on for 20 ms
WARM_S = 0.2  # a share is ample after a tenth of a second
LONE_BEFORE_S, LONE_WINDOW_S = 0.06, 0.06  # nobody else changes meanwhile
TARGETS = {FREE: 99.5, CAPPED: 99.0, FREE_OTHER: 99.5, CAPPED_OTHER: 99.0}
WITHOUT = {CAPPED: FREE, CAPPED_OTHER: FREE_OTHER}  # the same process
ERROR_AT_MOST = 0.5
ALL = 0


@dataclasses.dataclass(frozen=True)
class Program:
    what: str
    module: str
    name: str
    share: int = 90  # more than it makes the GPU busy for


PROGRAMS = (
    Program("BERT, fine-tuning with AdamW", "programs_torch", "finetune"),
    Program("GPT-2, generating", "programs_torch", "generate"),
    Program("decode, eager", "programs_torch", "decode"),
    Program("48 half-precision layers, argmax", "programs_torch", "half_layers"),
    Program("small-kernel MLP", "programs_torch", "small_kernels", 50),
    Program("MLP, AdamW by foreach", "programs_torch", "foreach", 50),
    Program("JAX, training by jit", "programs_jax", "training"),
)


class Process:
    """One of a set; what it had of the GPU is told by its account."""

    def __init__(self, b, command, library):
        environment = b.environment(library is not None, 0, library)
        self.step_dir, self.mkstep, self.share = environment.get("VGPU_STEP_DIR"), os.path.join(b.o.build, "mkstep"), 0
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self):
        said = self.process.stdout.readline().strip()
        if said.startswith("error") or not said:
            raise RuntimeError(said or "a program ended")
        return said

    def take(self, share, question):
        """Seconds: of the window, of a core by the keeper, and by the whole process."""
        # A program is started in any case: each has the machine to itself for as long before.
        what = ["--help"] if self.step_dir is None else ["--show", self.step_dir]
        if share != self.share:
            what = ["--set", self.step_dir, "--cores", str(share)]
        subprocess.run([self.mkstep, *what], check=True, stdout=subprocess.DEVNULL)
        self.share = share
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return tuple(float(part) for part in self.answer().split())

    def busy_s(self):
        """For how long it has kept the GPU busy, as it was counted."""
        shown = subprocess.run([self.mkstep, "--show", self.step_dir], check=True, capture_output=True, text=True).stdout.split("\t")
        return int(shown[5]) / 1e9

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def resident(b, module, programs, core):
    """A set: by what it is measured as, who does that, and whether under a share."""
    command = [sys.executable, os.path.join(HERE, "program_work.py"), module, ",".join(p.name for p in programs), str(core)]
    ours = Process(b, command, b.o.library)
    if b.o.lone:
        return {FREE: (ours, False), CAPPED: (ours, True)}
    arms = {NATIVE: (Process(b, command, None), False), TWIN: (Process(b, command, None), False), FREE: (ours, False), CAPPED: (ours, True)}
    if b.o.other is not None:
        other = Process(b, command, b.o.other)
        arms.update({FREE_OTHER: (other, False), CAPPED_OTHER: (other, True)})
    return arms


def processes_of(sets):
    return list(dict.fromkeys(process for arms in sets for process, _ in arms.values()))


class Cell:
    """One program on so many cores: what was seen of it, by set."""

    def __init__(self, program, cores):
        self.program, self.cores = program, cores
        self.sets = []  # of {who: [seconds of a step, by round]}
        self.keeper = {}  # parts of a core, by round
        self.busy = []  # parts of the time for which it kept the GPU busy
        self.broken = None

    def take(self, arms, who, before, steps):
        process, capped = arms[who]
        return process.take(self.program.share if capped else 0, f"{self.program.name} {self.cores} {before} {steps}")

    def measure(self, arms, seconds):
        lone = NATIVE not in arms
        step_s = self.take(arms, FREE if lone else NATIVE, 3, 5)[0] / 5
        before, steps, warm = (max(1, round(s / step_s)) for s in
                               (LONE_BEFORE_S if lone else BEFORE_S, LONE_WINDOW_S if lone else WINDOW_S, WARM_S))
        orders = [(FREE, CAPPED), (CAPPED, FREE)] if lone else rounds((NATIVE, TWIN), [who for who in arms if who in TARGETS])
        for who in arms:  # on new cores, and after another program
            self.take(arms, who, warm, 1)
        seen, until = {who: [] for who in arms}, time.monotonic() + seconds
        busy_from = arms[CAPPED][0].busy_s()
        while time.monotonic() < until:
            for order in orders:
                one = {who: [] for who in arms}
                for who in order:
                    took, keeper, _ = self.take(arms, who, before, steps)
                    one[who].append(took / steps)
                    self.keeper.setdefault(who, []).append(keeper / took)
                for who, windows in one.items():
                    seen[who].append(statistics.fmean(windows))
        # Without a share it is not counted.
        self.busy.append((arms[CAPPED][0].busy_s() - busy_from) / (sum(seen[CAPPED]) * (before + steps)))
        self.sets.append(seen)

    def compared(self, who, with_):
        return estimate([ratios([seen[other] for other in with_], seen[who]) for seen in self.sets])

    def rows(self):
        if not self.sets:
            yield self.program.what, self.cores or "all", *["-"] * (len(HEADER) - 3), f"BROKEN: {self.broken}" if self.broken else "no time left"
            return
        if NATIVE not in self.sets[0]:
            yield self.lone_row()
            return
        native_ms = 1000 * statistics.median(s for seen in self.sets for s in seen[NATIVE])
        twin, twin_error = self.compared(TWIN, [NATIVE])
        for who in (who for who in TARGETS if who in self.sets[0]):
            ratio, error = self.compared(who, [NATIVE, TWIN])
            capped = who in WITHOUT
            same, same_error = (f"{value:.2f}" for value in self.compared(who, [WITHOUT[who]])) if capped else ("-", "-")
            yield (self.program.what, self.cores or "all", f"{native_ms:.2f}", f"{who} of {self.program.share}" if who == CAPPED else who,
                   f"{ratio:.2f}", f"{error:.2f}", f"{twin:.2f}", f"{twin_error:.2f}", same, same_error,
                   f"{100 * statistics.fmean(self.busy):.1f}" if who == CAPPED else "-",
                   f"{100 * statistics.fmean(self.keeper[who]):.2f}" if capped else "-", sum(len(seen[who]) for seen in self.sets),
                   f">= {TARGETS[who]}", ("met" if ratio >= TARGETS[who] else "MISSED") + ("" if error <= ERROR_AT_MOST else ", error too large"))

    def lone_row(self):
        ratio, error = self.compared(CAPPED, [FREE])
        return (self.program.what, self.cores or "all", "-", f"{CAPPED} of {self.program.share}", "-", "-", "-", "-", f"{ratio:.2f}", f"{error:.2f}",
                f"{100 * statistics.fmean(self.busy):.1f}", f"{100 * statistics.fmean(self.keeper[CAPPED]):.2f}",
                sum(len(seen[CAPPED]) for seen in self.sets), f">= {TARGETS[CAPPED]}",
                ("met" if ratio >= TARGETS[CAPPED] else "MISSED") + ("" if error <= ERROR_AT_MOST else ", error too large"))

    def kept(self):
        return {"program": self.program.name, "cores": self.cores, "share": self.program.share, "sets": self.sets, "busy": self.busy,
                "keeper": {who: statistics.fmean(parts) for who, parts in self.keeper.items()}}


HEADER = ("program", "cores", "native ms", "with the library", "of native %", "+-", "another native %", "+-",
          "of itself without %", "+-", "GPU busy %", "keeper %", "rounds", "target", "verdict")


def measure_sets(b, module, cells, cores):
    """All cells of one module, by sets of processes that start together."""
    together = list(dict.fromkeys(cell.program for cell in cells))
    sets = [resident(b, module, together, core) for core in cores]
    try:
        for process in processes_of(sets):
            process.answer()
        for cell in cells:
            for arms in sets:
                try:
                    cell.measure(arms, b.o.seconds / len(sets))
                except RuntimeError as e:
                    cell.broken = str(e)
                    break
    finally:
        for process in processes_of(sets):
            process.end()


def programs(b, cores):
    """Rows of the table, also where it is cut short. cores: the first one of each set."""
    cells = [Cell(program, on) for program in PROGRAMS if b.wanted(program.what) for on in b.o.on_cores]
    try:
        for module in dict.fromkeys(cell.program.module for cell in cells):
            measure_sets(b, module, [cell for cell in cells if cell.program.module == module], cores)
    finally:
        for cell in cells:
            b.program_rows.extend(cell.rows())
        if b.o.out is not None:
            os.makedirs(b.o.out, exist_ok=True)
            with open(os.path.join(b.o.out, "programs.json"), "w") as to:
                json.dump([cell.kept() for cell in cells if cell.sets], to)
