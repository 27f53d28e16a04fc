# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Whether programs end whose streams are held back by a share, whatever they call meanwhile. See ../waits.sh."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

NEIGHBOUR_SHARE = 50
MEM_MIB = 12000


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, help="folder of the programs")
    parser.add_argument("--library", required=True)
    parser.add_argument("--shares", default="10,50,90", help="0: without a share")
    parser.add_argument("--where", default="alone,beside")
    parser.add_argument("--programs", default="", help="all, if not given")
    parser.add_argument("--native", action="store_true", help="without the library as well")
    parser.add_argument("--probe", action="store_true", help="only: which calls wait for a stream that is held back")
    parser.add_argument("--watchdog", type=int, default=20, help="seconds after which a program hangs")
    parser.add_argument("--sim", help="folder of the simulated driver, to try this without a GPU")
    return parser.parse_args()


class Bench:
    """A folder with steps on the first GPU."""

    def __init__(self, args):
        self.args = args
        self.dir = tempfile.mkdtemp(prefix="vgpu-waits-")
        os.chmod(self.dir, 0o755)
        self.jobs = 0
        self.env = dict(os.environ)
        if args.sim:
            self.env["LD_LIBRARY_PATH"] = args.sim
        smi = os.path.join(args.sim, "nvidia-smi") if args.sim else "nvidia-smi"
        answer = subprocess.run([smi, "--query-gpu=uuid", "--format=csv,noheader"], check=True, capture_output=True, text=True)
        self.uuid = answer.stdout.split()[0]

    def close(self):
        shutil.rmtree(self.dir)

    def step(self, share, turns):
        """A job of its own; the environment of its step."""
        self.jobs += 1
        command = [os.path.join(self.args.build, "mkstep"), "--dir", self.dir, "--gpu", self.uuid, "--mem", str(MEM_MIB),
                   "--device-mem", "140000", "--job", str(self.jobs), "--cores", str(share)] + (["--turns"] if turns else [])
        folder = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        return dict(self.env, LD_PRELOAD=self.args.library, VGPU_STEP_DIR=folder)

    def clear_board(self):
        shutil.rmtree(os.path.join(self.dir, "turns"), ignore_errors=True)


def threads_of(pid):
    """Where the threads of a program that hangs are."""
    lines = []
    for thread in sorted(os.listdir(f"/proc/{pid}/task")):
        row = [thread]
        for what in ("comm", "wchan", "syscall", "stat"):
            try:
                with open(f"/proc/{pid}/task/{thread}/{what}", encoding="ascii", errors="replace") as file:
                    text = file.read().strip()
            except OSError:
                text = "?"
            row.append(text.rsplit(")", 1)[-1].split()[0] if what == "stat" else text[:60])
        lines.append("    thread " + " | ".join(row))
    return lines


def run(command, env, watchdog_s):
    """(ok, hung or failed, seconds, what it was at)"""
    since = time.monotonic()
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as program:
        try:
            out, _ = program.communicate(timeout=watchdog_s)
        except subprocess.TimeoutExpired:
            where = threads_of(program.pid)
            program.kill()
            out, _ = program.communicate()
            last = [line for line in out.splitlines() if line.startswith("at ")]
            print("\n".join(where), file=sys.stderr)
            return "HUNG", time.monotonic() - since, last[-1] if last else ""
    took = time.monotonic() - since
    if program.returncode != 0:
        return f"FAILED {program.returncode}", took, " / ".join(out.splitlines()[-12:])
    return "ok", took, ""


def programs_of(build):
    """Each as its command."""
    commands = {}
    for name in ("waits", "waits-runtime"):
        path = os.path.join(build, name)
        if not os.path.exists(path):
            print(f"# {name} was not built: left out")
            continue
        listed = subprocess.run([path, "--list"], check=True, capture_output=True, text=True).stdout.split()
        commands.update({program: [path, program] for program in listed})
    return commands


def row(bench, name, command, share, where):
    bench.clear_board()
    if share is None:
        env = bench.env
    else:
        env = bench.step(share, where == "beside")
    neighbour = None
    if where == "beside":
        busy = [os.path.join(bench.args.build, "waits"), "busy"]
        neighbour = subprocess.Popen(busy, env=bench.step(NEIGHBOUR_SHARE, True), stdout=subprocess.PIPE, text=True)
        neighbour.stdout.readline()
    result, seconds, at = run(command, env, bench.args.watchdog)
    if neighbour is not None:
        neighbour.kill()
        neighbour.wait()
        neighbour.stdout.close()
    print(f"{name}\t{'native' if share is None else share}\t{where}\t{result}\t{seconds:.1f}\t{at}", flush=True)
    return result == "ok"


def main():
    args = arguments()
    bench = Bench(args)
    if args.probe:
        return subprocess.run([os.path.join(args.build, "waits"), "--probe"], env=bench.env, check=False).returncode
    commands = programs_of(args.build)
    names = args.programs.split(",") if args.programs else list(commands)
    shares = ([None] if args.native else []) + [int(share) for share in args.shares.split(",")]
    bad = 0
    print("program\tshare\twhere\tresult\tseconds\tat", flush=True)
    for name in names:
        for where in args.where.split(","):
            for share in shares:
                if share is not None or where == "alone":
                    bad += not row(bench, name, commands[name], share, where)
    bench.close()
    print(f"# {bad} did not end as they should")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
