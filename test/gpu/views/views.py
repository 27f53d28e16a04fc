# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""What each tool tells of a slice that has a neighbour on its GPU; see ../views.sh."""

import argparse
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import ordinals
import tools

HERE = os.path.dirname(os.path.abspath(__file__))
OWN_UID, NEIGHBOUR_UID = 65534, 65533
NEIGHBOUR_MIB = 5000  # its limit
HOLD_S = 240


def options():
    p = argparse.ArgumentParser(prog="views.sh", description="Whether all tools tell the same of a slice, and nothing of its neighbour.")
    p.add_argument("--build", required=True, help=argparse.SUPPRESS)
    p.add_argument("--library", default=os.path.join(HERE, "../../../build/libslurm-vgpu.so"), help="the interposer")
    p.add_argument("--tools", metavar="FOLDER", help="where nvtop and gpustat are, if not installed")
    p.add_argument("--mem", type=int, default=3000, metavar="MIB", help="the limit (3000)")
    p.add_argument("--hold", type=int, default=512, metavar="MIB", help="what each side allocates (512)")
    p.add_argument("--ordinals", action="store_true", help="instead: what numbers in CUDA_VISIBLE_DEVICES mean, on two GPUs")
    p.add_argument("--only", metavar="TEXT", help="only tools whose name has this text")
    p.add_argument("--out", metavar="FOLDER", help="keep what the tools have printed there")
    return p.parse_args()


class Ground:
    """Two steps of two users on one GPU, and a process at work in each."""

    def __init__(self, o):
        self.o = o
        self.folder = tempfile.mkdtemp(prefix="vgpu-views-")
        os.chmod(self.folder, 0o755)
        shutil.copy(o.library, self.path("libslurm-vgpu.so"))
        shutil.copy(os.path.join(o.build, "mkstep"), self.folder)
        shutil.copy(os.path.join(o.build, "ordinals"), self.folder)
        for name in ("hold-own", "hold-neighbour"):
            shutil.copy(os.path.join(o.build, "hold"), self.path(name))
        if o.tools:
            shutil.copytree(o.tools, self.path("tools"))
        self.home = self.path("home")
        os.makedirs(self.home)
        os.chown(self.home, OWN_UID, -1)
        smi = subprocess.run(["nvidia-smi", "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits"],
                             check=True, capture_output=True, text=True).stdout.splitlines()
        self.uuids = [line.split(", ")[0] for line in smi]
        self.uuid, device_mib = smi[0].split(", ")
        self.device_mib = int(device_mib)
        self.step = self.make_step(1, OWN_UID, o.mem)
        self.neighbour_step = self.make_step(2, NEIGHBOUR_UID, NEIGHBOUR_MIB)
        self.processes = []

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def make_step(self, job, uid, mib, uuids=None):
        made = subprocess.run([self.path("mkstep"), "--dir", self.path("steps"), "--gpu", uuids or self.uuid, "--mem", str(mib), "--device-mem",
                               str(self.device_mib), "--job", str(job), "--uid", str(uid)], check=True, capture_output=True, text=True)
        return made.stdout.strip()

    def environment(self, step):
        e = dict(os.environ, CUDA_VISIBLE_DEVICES=self.uuid, HOME=self.home, PYTHONDONTWRITEBYTECODE="1", NO_COLOR="1", TERM="xterm")
        if self.o.tools:
            e["PATH"] = self.path("tools", "bin") + ":" + e["PATH"]
            e["LD_LIBRARY_PATH"] = ":".join(filter(None, [e.get("LD_LIBRARY_PATH"), self.path("tools", "lib")]))
            e["PYTHONPATH"] = self.path("tools", "python")
            e["TERMINFO"] = self.path("tools", "terminfo")
        e.pop("LD_PRELOAD", None)
        if step:
            e.update(LD_PRELOAD=self.path("libslurm-vgpu.so"), VGPU_STEP_DIR=step)
        return e

    def as_user(self, step, uid):
        return dict(env=self.environment(step), user=uid, group=uid, extra_groups=[])

    def hold(self, name, step, uid):
        p = subprocess.Popen([self.path(name), str(self.o.hold), str(HOLD_S)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             **self.as_user(step, uid))
        self.processes.append(p)
        if p.stdout.readline() != "ready\n":
            sys.exit(f"views.sh: {name} does not hold its memory")
        return p.pid

    def peaks_mib(self, step):
        """The highest use of each GPU: struct vgpu_ledger has it after its header and 16 numbers of use now."""
        with open(os.path.join(step, "ledger"), "rb") as ledger:
            return [p / (1 << 20) for p in struct.unpack_from("<16Q", ledger.read(320), 192)]

    def used_mib(self, step):
        shown = subprocess.run([self.path("mkstep"), "--show", step], check=True, capture_output=True, text=True).stdout.split()
        return int(shown[1]) / (1 << 20)

    def end(self):
        for p in self.processes:
            p.kill()
            p.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def judge(said, want, own, neighbour, limited):
    """Why what a tool said is not the story, or ok."""
    faults = []
    for what, tolerance in (("total", 1), ("used", 2)):
        told = getattr(said, what)
        if limited and told is not None and abs(told - want[what]) > max(tolerance, said.rounding):
            faults.append(f"{what} {told:g}, not {want[what]:g}")
    if limited and said.process_used is not None and abs(said.process_used - want["used"]) > max(2, said.rounding):
        faults.append(f"process holds {said.process_used:g}, not {want['used']:g}")
    if said.pids is not None:
        expected = {own} if limited else {own, neighbour}
        if limited and said.pids != expected:
            faults.append(f"processes {sorted(said.pids)}, not {sorted(expected)}")
        if not limited and not expected <= said.pids:
            faults.append("does not list both processes, so its silence below proves nothing")
    if limited and said.neighbour:
        faults.append("the neighbour is seen")
    return "; ".join(faults) or "ok"


def show(header, rows):
    width = [max(len(str(r[i])) for r in [header, *rows]) for i in range(len(header))]
    for r in [header, *rows]:
        print("  ".join(str(c).ljust(w) for c, w in zip(r, width)).rstrip())


def number(value):
    return "-" if value is None else f"{value:g}"


def main_ordinals(g):
    try:
        if len(g.uuids) < 2:
            return "views.sh: --ordinals wants two GPUs"
        rows = ordinals.run(g, g.uuids, OWN_UID)
    finally:
        g.end()
    show(("granted", "CUDA_VISIBLE_DEVICES", "CUDA", "NVML", "peak MiB", "verdict"), rows)
    return 1 if any(row[-1] != "ok" for row in rows) else 0


def main():
    o = options()
    if os.geteuid() != 0:
        sys.exit("views.sh: only root can prepare a step")
    g = Ground(o)
    if o.ordinals:
        sys.exit(main_ordinals(g))
    out = o.out or g.path("out")
    os.makedirs(out, exist_ok=True)
    rows, wrong = [], 0
    try:
        neighbour = g.hold("hold-neighbour", g.neighbour_step, NEIGHBOUR_UID)
        own = g.hold("hold-own", g.step, OWN_UID)
        want = {"total": o.mem, "used": g.used_mib(g.step)}
        print(f"GPU {g.uuid}, {g.device_mib} MiB. The slice: {o.mem} MiB, {want['used']:g} of them used by process {own} by its ledger. "
              f"The neighbour: process {neighbour}, {g.used_mib(g.neighbour_step):g} MiB.\n")
        for tool in tools.ALL:
            if o.only and o.only not in tool.name:
                continue
            for limited in (False, True):
                text, problem = tool.run(g.as_user(g.step if limited else None, OWN_UID))
                with open(os.path.join(out, f"{tool.name.replace(' ', '_')}.{'slice' if limited else 'alone'}.txt"), "w") as file:
                    file.write(text)
                kind = "slice" if limited else "alone"
                if problem:
                    rows.append((tool.name, kind, "-", "-", "-", "-", "-", "not run: " + problem))
                    continue
                said = tool.read(text)
                said.neighbour = re.search(rf"\b{neighbour}\b|hold-neighbour", text) is not None
                verdict = judge(said, want, own, neighbour, limited)
                wrong += limited and verdict != "ok"
                pids = "-" if said.pids is None else ",".join({own: "own", neighbour: "neighbour"}.get(p, str(p)) for p in sorted(said.pids)) or "none"
                rows.append((tool.name, kind, number(said.total), number(said.used), pids, number(said.utilisation),
                             "yes" if said.neighbour else "no", verdict))
    finally:
        g.end()
    show(("tool", "run", "total", "used", "processes", "util", "neighbour", "verdict"), rows)
    sys.exit(1 if wrong else 0)


main()
