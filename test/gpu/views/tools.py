# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""The tools: how each is started, and where in its output memory, processes and utilisation stand."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys

import screen

TIMEOUT_S = 30


@dataclasses.dataclass
class Said:
    """MiB and percent of the first GPU; None: the tool does not tell."""

    total: float = None
    used: float = None
    pids: set = None
    process_used: float = None  # by the only process that is listed
    utilisation: float = None
    rounding: float = 0  # of a tool that prints fewer digits
    neighbour: bool = False


def first(pattern, text, flags=re.M):
    found = re.search(pattern, text, flags)
    return float(found.group(1)) if found else None


class Tool:
    def __init__(self, name, command, read, draws_s=0):
        self.name, self.command, self.read, self.draws_s = name, command, read, draws_s

    def run(self, options):
        """Its output, and why there is none."""
        if shutil.which(self.command[0], path=options["env"]["PATH"]) is None:
            return "", f"there is no {self.command[0]}"
        if self.draws_s:
            text = screen.run(self.command, self.draws_s, **options)
            return text, "" if text.strip() else "an empty screen"
        try:
            p = subprocess.run(self.command, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, **options)
        except subprocess.TimeoutExpired:
            return "", f"has not ended after {TIMEOUT_S} s"
        text = p.stdout + p.stderr
        return text, "" if p.returncode == 0 else f"exit status {p.returncode}: {(text.strip().splitlines() or [''])[-1]}"


def table(text):
    processes = text.partition("Processes:")[2]
    lines = re.findall(r"^\|\s+\d+\s+(?:\S+\s+\S+\s+)?(\d+)\s+(?:[CGM+]+\s+)?.*?(\d+)MiB", processes, re.M)
    return Said(total=first(r"MiB /\s+(\d+)MiB", text), used=first(r"(\d+)MiB /", text), pids={int(pid) for pid, _ in lines},
                process_used=float(lines[0][1]) if len(lines) == 1 else None, utilisation=first(r"MiB\s+\|\s+(\d+)%", text))


def query(text):
    memory = text.partition("FB Memory Usage")[2]
    pids = re.findall(r"Process ID\s+:\s+(\d+)", text)
    return Said(total=first(r"Total\s+:\s+(\d+) MiB", memory), used=first(r"\bUsed\s+:\s+(\d+) MiB", memory), pids={int(p) for p in pids},
                process_used=first(r"Used GPU Memory\s+:\s+(\d+) MiB", text) if len(pids) == 1 else None,
                utilisation=first(r"^\s+(?:Gpu|GPU)\s+:\s+(\d+) %", text))


def csv(text):
    total, used, utilisation = (text.splitlines() or [""])[0].split(", ")
    return Said(total=float(total), used=float(used), utilisation=float(utilisation) if utilisation.isdigit() else None)


def apps(text):
    rows = [line.split(", ") for line in text.splitlines() if re.match(r"\d+, \d+", line)]
    return Said(pids={int(pid) for pid, _ in rows}, process_used=float(rows[0][1]) if len(rows) == 1 else None)


def columns(text):
    """Rows of dmon and pmon as dictionaries; their first line names the columns."""
    lines = [line for line in text.splitlines() if line.strip()]
    names = next((line.lstrip("# ").split() for line in lines if line.startswith("#")), [])
    return [dict(zip(names, line.split())) for line in lines if not line.startswith("#")]


def digits(row, name):
    value = row.get(name, "-")
    return float(value) if value.isdigit() else None


def dmon(text):
    rows = columns(text)
    last = rows[-1] if rows else {}
    return Said(used=digits(last, "fb"), utilisation=digits(last, "sm"))


def pmon(text):
    rows = list({row["pid"]: row for row in columns(text) if row.get("pid", "-").isdigit()}.values())
    return Said(pids={int(row["pid"]) for row in rows}, process_used=digits(rows[0], "fb") if len(rows) == 1 else None,
                utilisation=digits(rows[0], "sm") if len(rows) == 1 else None)


def nvtop(text):
    """Its memory bar says GiB with a few digits; its table begins with the column PID."""
    used, total, rounding = None, None, 0
    found = re.search(r"([\d.]+)\s*([GM])i?B?/([\d.]+)\s*([GM])i?B?\]", text)
    if found:
        unit = {"G": 1024, "M": 1}
        used, total = float(found.group(1)) * unit[found.group(2)], float(found.group(3)) * unit[found.group(4)]
        rounding = max(u / 10 ** len(n.partition(".")[2]) for n, u in
                       ((found.group(1), unit[found.group(2)]), (found.group(3), unit[found.group(4)])))
    below = re.split(r"^\s*PID\b.*$", text, maxsplit=1, flags=re.M)
    rows = re.findall(r"^\s*(\d+)\s+\S+\s+\d+\s", below[1], re.M) if len(below) == 2 else []
    return Said(total=total, used=used, rounding=rounding, pids={int(p) for p in rows}, utilisation=first(r"GPU\[[^\]]*?(\d+)%\]", text))


def gpustat(text):
    gpu = json.loads(text)["gpus"][0]
    processes = gpu["processes"] or []
    return Said(total=gpu["memory.total"], used=gpu["memory.used"], pids={p["pid"] for p in processes},
                process_used=processes[0]["gpu_memory_usage"] if len(processes) == 1 else None, utilisation=gpu["utilization.gpu"])


def gpustat_line(text):
    found = re.search(r"(\d+) %, *.*?(\d+) / +(\d+) MB|(\d+) / +(\d+) MB", text)
    numbers = [n for n in found.groups() if n is not None] if found else []
    pids = set(map(int, re.findall(r"/(\d+)\((?:\d+|\?)M\)", text)))
    return Said(total=float(numbers[-1]) if numbers else None, used=float(numbers[-2]) if numbers else None, pids=pids)


ALL = [
    Tool("nvidia-smi", ["nvidia-smi"], table),
    Tool("nvidia-smi -q", ["nvidia-smi", "-q"], query),
    Tool("nvidia-smi --query-gpu", ["nvidia-smi", "--query-gpu=memory.total,memory.used,utilization.gpu", "--format=csv,noheader,nounits"], csv),
    Tool("nvidia-smi --query-compute-apps", ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"], apps),
    Tool("nvidia-smi dmon", ["nvidia-smi", "dmon", "-c", "2", "-s", "um"], dmon),
    Tool("nvidia-smi pmon", ["nvidia-smi", "pmon", "-c", "2", "-s", "um"], pmon),
    Tool("nvtop", ["nvtop"], nvtop, draws_s=5),
    Tool("gpustat --json", [sys.executable, "-m", "gpustat", "--json"], gpustat),
    Tool("gpustat", [sys.executable, "-m", "gpustat", "--show-pid", "--no-color"], gpustat_line),
]
