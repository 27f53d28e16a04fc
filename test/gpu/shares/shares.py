# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Whether shares of a GPU's time are true, by NVML and by counted work; see ../shares.sh."""

import argparse
import collections
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import change  # noqa: E402: these need the path
import collective  # noqa: E402
import latency  # noqa: E402
import pairs  # noqa: E402
import singles  # noqa: E402
from ground import Ground  # noqa: E402
from report import stop_when_told, table  # noqa: E402

PARTS = {
    "witness": singles.witness, "single": singles.single, "fresh": singles.fresh, "processes": singles.processes,
    "pairs": pairs.pairs, "faults": pairs.faults, "latency": latency.latency, "change": change.change, "elastic": change.elastic,
    "collective": collective.collective,
}

LAST_WORDS = 20  # lines


def options():
    def numbers(text):
        return [int(t) for t in text.split(",")]

    p = argparse.ArgumentParser(prog="shares.sh", description="Whether shares of a GPU's time are true.")
    p.add_argument("--build", required=True, help=argparse.SUPPRESS)
    p.add_argument("--library", default=os.path.join(HERE, "../../../build/libslurm-vgpu.so"), help="the interposer")
    p.add_argument("--only", default=",".join(PARTS), help="parts, comma-separated: %(default)s")
    p.add_argument("--loads", type=lambda t: t.split(","), help="of the part single, comma-separated, fills and moves too: " + ",".join(singles.SINGLES))
    p.add_argument("--pairs", type=lambda t: t.split(","), help="of the part pairs: " + ",".join("+".join(c) for c in pairs.COMBOS))
    p.add_argument("--rounds", type=int, default=3, help="of the part faults (%(default)s)")
    p.add_argument("--seconds", type=float, default=5, help="of each window; whole seconds give the spread (%(default)s)")
    p.add_argument("--shares", type=numbers, default=[10, 25, 50, 75, 90], help="of the part single (10,25,50,75,90)")
    p.add_argument("--bias", type=float, default=0.0, metavar="POINTS", help="what NVML is off by, without the part witness, which measures it (0)")
    p.add_argument("--out", metavar="FOLDER", help="keep everything there: shares.json, what programs said")
    p.add_argument("--sim", metavar="FOLDER", help="the simulated driver's folder: tries the measurement without a GPU")
    p.add_argument("--sim-gpus", type=int, default=1, help="how many it has (1)")
    p.add_argument("--pretend", action="store_true", help="with --sim: the loads limit themselves, as a right limiter would")
    return p.parse_args()


class Shares(Ground):
    """The ground, and what was found on it."""

    def __init__(self, o):
        self.begin, self.progress = time.monotonic(), sys.stderr
        self.found, self.missed, self.broken, self.bias = [], 0, False, o.bias
        super().__init__(o)

    def keep(self, part, **facts):
        self.found.append({"part": part, **facts})

    def table(self, title, header, rows, judged=True):
        """The last column is the verdict."""
        if judged:
            self.missed += sum(str(r[-1]).startswith(("MISSED", "BROKEN")) for r in rows)
            self.broken |= any(str(r[-1]).startswith("BROKEN") for r in rows)
        table(title, header, rows)

    def last_words(self):
        """Of the programs, which say on their standard error why they end."""
        with open(self.log.name, errors="replace") as f:
            return [line.rstrip() for line in collections.deque(f, maxlen=LAST_WORDS)]

    def save(self):
        with open(os.path.join(self.out, "shares.json"), "w") as to:
            json.dump({"seconds": self.o.seconds, "bias": self.bias, "loops_per_us": self.loops_per_us, "rows": self.found}, to, indent=1)


def main():
    o = options()
    if os.geteuid() != 0:
        sys.exit("shares.sh: only root can prepare a step")
    unknown = set(o.only.split(",")) - set(PARTS)
    if unknown:
        sys.exit(f"shares.sh: --only {','.join(sorted(unknown))}: parts are {', '.join(PARTS)}")
    g = Shares(o)
    stop_when_told()
    try:
        for name in o.only.split(","):
            try:
                PARTS[name](g)
            except (RuntimeError, subprocess.SubprocessError, OSError) as e:
                g.table(name, ("part", "verdict"), [(name, f"BROKEN: {str(e)[:200]}")])
            for w in list(g.living):
                w.close()
            g.save()
            print(f"shares: {name}: at {time.monotonic() - g.begin:.0f} s", file=sys.stderr, flush=True)
        if g.witness.broken:
            print("shares:", g.witness.broken, file=sys.stderr)
        if g.broken:
            print("shares: what the programs said last:", *g.last_words(), sep="\n", file=sys.stderr)
    finally:
        g.save()
        g.close()
    print(f"{g.missed} rows are not as they should be." if g.missed else "All as it should be.")
    sys.exit(1 if g.missed else 0)


main()
