# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Runs programs of several CUDA runtimes under a limit and says where each allocation ends; see ../cudart.sh."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
NOBODY = 65534
TIMEOUT_S = 120
# Of the limit, what a program need not get: its context and the smallest piece, and whole chunks of a pool.
CHUNKS_MIB = 66


def options():
    p = argparse.ArgumentParser(prog="cudart.sh", description="Where programs of older CUDA runtimes meet their limit.")
    p.add_argument("--build", required=True, help=argparse.SUPPRESS)
    p.add_argument("--programs", required=True, metavar="FOLDER", help="what cudart/build.sh has made")
    p.add_argument("--library", default=os.path.join(HERE, "../../../build/libslurm-vgpu.so"), help="the interposer")
    p.add_argument("--mem", type=int, default=3000, metavar="MIB", help="the limit (3000)")
    return p.parse_args()


class Ground:
    def __init__(self, o):
        self.o = o
        self.folder = tempfile.mkdtemp(prefix="vgpu-cudart-")
        os.chmod(self.folder, 0o755)
        shutil.copytree(o.programs, self.path("programs"))
        shutil.copy(o.library, self.path("libslurm-vgpu.so"))
        for name in ("mkstep", "witness"):
            shutil.copy(os.path.join(o.build, name), self.folder)
        smi = subprocess.run(["nvidia-smi", "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits"],
                             check=True, capture_output=True, text=True).stdout.splitlines()
        self.uuid, self.device_mib = smi[0].split(", ")
        self.jobs = 0

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def run(self, program):
        """Its output, the ledger afterwards and the most that the driver had given it, all in MiB."""
        self.jobs += 1
        made = subprocess.run([self.path("mkstep"), "--dir", self.path("steps"), "--gpu", self.uuid, "--mem", str(self.o.mem),
                               "--device-mem", self.device_mib, "--job", str(self.jobs), "--uid", str(NOBODY)],
                              check=True, capture_output=True, text=True)
        step, report = made.stdout.strip(), self.path("peak")
        command = [self.path("witness"), "--gpu", self.uuid, "--uid", str(NOBODY), "--report", report, "--preload", self.path("libslurm-vgpu.so"),
                   "--step", step, "--", self.path("programs", program), str(self.o.mem + 512)]
        p = subprocess.Popen(command, env=dict(os.environ, CUDA_VISIBLE_DEVICES=self.uuid), stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            out = p.communicate(timeout=TIMEOUT_S)[0]
        except subprocess.TimeoutExpired:
            p.terminate()  # the witness ends what it has started
            out = p.communicate()[0] + f"\nSTOP it has not ended after {TIMEOUT_S} s"
        shown = subprocess.run([self.path("mkstep"), "--show", step], check=True, capture_output=True, text=True).stdout.split()
        peak = int(open(report).read()) if os.path.exists(report) else 0
        return out, int(shown[2]) >> 20, int(shown[3]), peak / (1 << 20)


def judge(o, lines, ledger_peak, peak):
    faults = [line for line in lines if line.startswith(("STOP", "WRONG"))]
    told = {line.split()[0]: [int(n) for n in line.split()[1:]] for line in lines if line.startswith(("VERSION", "INFO", "END"))}
    if "INFO" not in told:
        return faults or ["says nothing of its memory"]
    total, free, properties = told["INFO"]
    if total != o.mem or properties != o.mem:
        faults.append(f"sees {total} and {properties} MiB in all")
    for _, name, got, error in (line.split() for line in lines if line.startswith("ROW")):
        if int(got) > o.mem or error != "cudaErrorMemoryAllocation":
            faults.append(f"{name} took {got} MiB and ended with {error}")
        elif int(got) < free - CHUNKS_MIB:
            faults.append(f"{name} took only {got} of {free} MiB")
    if ledger_peak > o.mem or peak > o.mem:
        faults.append(f"held {peak:.0f} MiB by the driver and {ledger_peak} by the ledger")
    if told.get("END", [0, 0])[1] < free - CHUNKS_MIB:
        faults.append("not all is free again at the end")
    return faults


def main():
    o = options()
    if os.geteuid() != 0:
        sys.exit("cudart.sh: only root can prepare a step")
    programs = sorted(name for name in os.listdir(o.programs) if name.endswith(("-static", "-shared")))
    if not programs:
        sys.exit(f"cudart.sh: {o.programs} has no programs: cudart/build.sh makes them")
    g, wrong = Ground(o), 0
    print(f"limit {o.mem} MiB of {g.device_mib}\n")
    try:
        for program in programs:
            out, ledger_peak, refusals, peak = g.run(program)
            lines = out.splitlines()
            faults = judge(o, lines, ledger_peak, peak)
            wrong += bool(faults)
            print(f"{program}: {'; '.join(faults) or 'ok'} (driver at most {peak:.0f} MiB, ledger {ledger_peak}, refusals {refusals})")
            for line in lines:
                print("    " + line)
    finally:
        shutil.rmtree(g.folder, ignore_errors=True)
    sys.exit(1 if wrong else 0)


main()
