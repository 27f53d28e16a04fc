# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""What the library costs programs that launch many short kernels: see bench.sh. Of each set two processes are native and one has the
library. All are warm, one works while the others wait, in windows of some hundredths of a second."""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time

from pairing import estimate, ratios, rounds

HERE = os.path.dirname(os.path.abspath(__file__))
NATIVE, TWIN, OURS, OTHER = "native", "another native", "ours", "other build"
BEFORE_S, WINDOW_S = 0.025, 0.03  # somebody else had the core and the GPU
WARM_S = 0.2
TARGET = 99.5
ERROR_AT_MOST = 0.5


@dataclasses.dataclass(frozen=True)
class Program:
    what: str
    module: str
    name: str


PROGRAMS = (
    Program("BERT, fine-tuning with AdamW", "programs_torch", "finetune"),
    Program("GPT-2, generating", "programs_torch", "generate"),
    Program("decode, eager", "programs_torch", "decode"),
    Program("48 half-precision layers, argmax", "programs_torch", "half_layers"),
    Program("small-kernel MLP", "programs_torch", "small_kernels"),
    Program("MLP, AdamW by foreach", "programs_torch", "foreach"),
    Program("JAX, training by jit", "programs_jax", "training"),
)


class Process:
    """One of a set."""

    def __init__(self, b, command, library):
        self.process = subprocess.Popen(command, env=b.environment(library is not None, 0, library), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def answer(self):
        said = self.process.stdout.readline().strip()
        if said.startswith("error") or not said:
            raise RuntimeError(said or "a program ended")
        return said

    def take(self, question):
        """Seconds."""
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return float(self.answer())

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def resident(b, module, programs, core):
    """A set, by what each is measured as."""
    command = [sys.executable, os.path.join(HERE, "program_work.py"), module, ",".join(p.name for p in programs), str(core)]
    arms = {NATIVE: None, TWIN: None, OURS: b.o.library}
    if b.o.other is not None:
        arms[OTHER] = b.o.other
    return {who: Process(b, command, library) for who, library in arms.items()}


def processes_of(sets):
    return [process for arms in sets for process in arms.values()]


class Cell:
    """One program on so many cores: what was seen of it, by set."""

    def __init__(self, program, cores):
        self.program, self.cores = program, cores
        self.sets = []  # of {who: [seconds of a step, by round]}
        self.broken = None

    def take(self, arms, who, before, steps):
        return arms[who].take(f"{self.program.name} {self.cores} {before} {steps}")

    def measure(self, arms, seconds):
        step_s = self.take(arms, NATIVE, 3, 5) / 5
        before, steps, warm = (max(1, round(s / step_s)) for s in (BEFORE_S, WINDOW_S, WARM_S))
        orders = rounds((NATIVE, TWIN), [who for who in arms if who in (OURS, OTHER)])
        for who in arms:  # on new cores, and after another program
            self.take(arms, who, warm, 1)
        seen, until = {who: [] for who in arms}, time.monotonic() + seconds
        while time.monotonic() < until:
            for order in orders:
                one = {who: [] for who in arms}
                for who in order:
                    one[who].append(self.take(arms, who, before, steps) / steps)
                for who, windows in one.items():
                    seen[who].append(statistics.fmean(windows))
        self.sets.append(seen)

    def compared(self, who, with_):
        return estimate([ratios([seen[other] for other in with_], seen[who]) for seen in self.sets])

    def rows(self):
        if not self.sets:
            yield self.program.what, self.cores or "all", *["-"] * (len(HEADER) - 3), f"BROKEN: {self.broken}" if self.broken else "no time left"
            return
        native_ms = 1000 * statistics.median(s for seen in self.sets for s in seen[NATIVE])
        twin, twin_error = self.compared(TWIN, [NATIVE])
        for who in (who for who in (OURS, OTHER) if who in self.sets[0]):
            ratio, error = self.compared(who, [NATIVE, TWIN])
            yield (self.program.what, self.cores or "all", f"{native_ms:.2f}", who, f"{ratio:.2f}", f"{error:.2f}", f"{twin:.2f}", f"{twin_error:.2f}",
                   sum(len(seen[who]) for seen in self.sets), f">= {TARGET}",
                   ("met" if ratio >= TARGET else "MISSED") + ("" if error <= ERROR_AT_MOST else ", error too large"))

    def kept(self):
        return {"program": self.program.name, "cores": self.cores, "sets": self.sets}


HEADER = ("program", "cores", "native ms", "with the library", "of native %", "+-", "another native %", "+-", "rounds", "target", "verdict")


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
