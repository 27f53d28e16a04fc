# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Runs every path and framework under a limit and says where each one ends; see run.sh."""

import argparse
import concurrent.futures
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import report

HERE = os.path.dirname(os.path.abspath(__file__))
NOBODY = 65534
MARGIN_MIB = 512  # beyond the limit: what works there is not limited
RACE_MIB = 8192  # eight contexts must fit
PROGRAMS = ("paths", "runtime", "runtime-ptds")
# Where the physical end is looked for, with a limit of the whole GPU and without the interposer. Not
# graphs: after a launch that failed, the driver itself keeps what it had got until the context ends.
WHOLE = ("cuMemAlloc", "cuMemAllocAsync", "cuMemCreate + cuMemMap", "cuArray3DCreate", "cudaMalloc", "cudaMallocAsync")
FRAMEWORKS = (
    [("torch_cases.py", case) for case in
     ("compile", "native", "expandable", "async", "graphs", "loader-fork", "loader-spawn", "ipc", "ddp")]
    + [("jax_cases.py", case) for case in ("preallocate", "grow", "platform", "async")]
    + [("cupy_cases.py", case) for case in ("pool", "async", "managed")]
    + [("numba_cases.py", "numba")]
)


def options():
    p = argparse.ArgumentParser(prog="run.sh", description="Where each path and framework meets its limit.")
    p.add_argument("--build", required=True, help=argparse.SUPPRESS)
    p.add_argument("--library", default=os.path.join(HERE, "../../build/libslurm-vgpu.so"), help="the interposer")
    p.add_argument("--mem", type=int, default=3000, metavar="MIB", help="the limit (3000)")
    p.add_argument("--gpu", metavar="UUID", help="which GPU (the first)")
    p.add_argument("--stage", default="paths,whole,frameworks", help="what to run, comma-separated (all)")
    p.add_argument("--only", metavar="TEXT", help="only paths and frameworks whose name has one of these texts, comma-separated")
    p.add_argument("--jobs", type=int, default=6, help="how many at once (6)")
    p.add_argument("--timeout", type=int, default=90, metavar="S", help="for each of them (90)")
    p.add_argument("--uid", type=int, default=NOBODY, help="run them as this user (nobody); 0: as root")
    p.add_argument("--out", metavar="FOLDER", help="keep raw rows and output there")
    p.add_argument("--in-job", action="store_true", help="in a job of Slurm: under the job's own limit")
    return p.parse_args()


class Ground:
    """A folder that any user may enter, with everything that is needed to run one program."""

    def __init__(self, o):
        self.o = o
        self.folder = tempfile.mkdtemp(prefix="vgpu-gpu-")
        os.chmod(self.folder, 0o755)
        self.jobs = itertools.count(1)
        self.runs = 0
        self.lock = threading.Lock()
        self.out = o.out or os.path.join(self.folder, "out")
        os.makedirs(self.out, exist_ok=True)
        for name in (*PROGRAMS, "witness", "mkstep"):
            if os.path.exists(os.path.join(o.build, name)):
                shutil.copy(os.path.join(o.build, name), self.folder)
        shutil.copytree(os.path.join(HERE, "frameworks"), os.path.join(self.folder, "frameworks"))
        if o.in_job:
            return
        shutil.copy(o.library, os.path.join(self.folder, "libslurm-vgpu.so"))
        smi = subprocess.run(["nvidia-smi", "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits"],
                             check=True, capture_output=True, text=True).stdout.splitlines()
        found = [line.split(", ") for line in smi]
        self.uuid, device_mib = next(f for f in found if o.gpu in (None, f[0]))
        self.pair = ",".join(f[0] for f in found[:2]) if o.gpu is None else self.uuid
        self.device_mib = int(device_mib)

    def path(self, name):
        return os.path.join(self.folder, name)

    def home(self, number):
        home = self.path(f"home{number}")
        os.makedirs(home, exist_ok=True)
        if not self.o.in_job:
            os.chown(home, self.o.uid, -1)
        return home

    def step(self, mib, uuids):
        """A new job's step with this limit: its number and folder."""
        with self.lock:
            job = next(self.jobs)
        made = subprocess.run([self.path("mkstep"), "--dir", self.path("steps"), "--gpu", uuids, "--mem", str(mib), "--device-mem",
                               str(self.device_mib), "--job", str(job), "--uid", str(self.o.uid)], check=True, capture_output=True, text=True)
        return job, made.stdout.strip()

    def ledger(self, folder):
        """Bytes: limit, use, highest use; then refusals and live processes."""
        shown = subprocess.run([self.path("mkstep"), "--show", folder], capture_output=True, text=True)
        return [int(f) for f in shown.stdout.split()] if shown.returncode == 0 else None

    def run(self, command, mib, label, several=False):
        """Output, exit status, ledger and the most that was really held: under a limit, or with None without the interposer."""
        step = highest = None
        if self.o.in_job:
            home, wrapped = self.home("job"), command
        else:
            uuids = self.pair if several else self.uuid
            with self.lock:
                self.runs += 1
                highest = os.path.join(self.folder, f"highest{self.runs}")
            wrapped = [self.path("witness"), "--gpu", self.uuid, "--uid", str(self.o.uid), "--report", highest]
            home = None
            if mib is not None:
                home, step = self.step(mib, uuids)
                wrapped += ["--preload", self.path("libslurm-vgpu.so"), "--step", step]
            home = self.home(home or f"-{label}".replace(" ", "-").replace("/", "-"))
            wrapped += ["--", *command]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHINDUCTOR", "TRITON"))}
        environment.update(HOME=home, XDG_CACHE_HOME=home + "/cache", PYTHONUNBUFFERED="1", CUDA_CACHE_PATH=home + "/nv",
                           TORCHINDUCTOR_CACHE_DIR=home + "/inductor", TRITON_CACHE_DIR=home + "/triton", TMPDIR="/tmp",
                           PYTHONDONTWRITEBYTECODE="1")
        if not self.o.in_job:
            environment["CUDA_VISIBLE_DEVICES"] = uuids
        begin = time.monotonic()
        with tempfile.TemporaryFile("w+", errors="replace") as out_file, tempfile.TemporaryFile("w+", errors="replace") as err_file:
            p = subprocess.Popen(wrapped, env=environment, stdin=subprocess.DEVNULL, stdout=out_file, stderr=err_file, start_new_session=self.o.in_job)
            try:
                status = p.wait(self.o.timeout)
            except subprocess.TimeoutExpired:
                status = "timeout"
                if self.o.in_job:
                    os.killpg(p.pid, signal.SIGKILL)
                else:
                    p.terminate()  # the witness ends what it has started
                p.wait()
            texts = []
            for file in (out_file, err_file):
                file.seek(0)
                texts.append(file.read())
            out, err = texts
        with self.lock, open(os.path.join(self.out, "output.txt"), "a") as log:
            log.write(f"==== {label} | limit {mib} | status {status} | {time.monotonic() - begin:.1f} s\n{out}{err}\n")
        peak = int(open(highest).read()) if highest and os.path.exists(highest) else None
        return out, err, status, self.ledger(step) if step else None, peak


def wanted(g, name):
    return g.o.only is None or any(text in name for text in g.o.only.split(","))


def all_paths(g):
    for program in PROGRAMS:
        if os.path.exists(g.path(program)):
            for name in subprocess.run([g.path(program), "--list"], check=True, capture_output=True, text=True).stdout.splitlines():
                if wanted(g, name):
                    yield program, name


def one_path(g, program, name, mib):
    command = [g.path(program), "--one", name]
    if mib is not None and (g.o.in_job or mib < g.device_mib):
        command += ["--cap", str(mib + MARGIN_MIB)]
    out, err, status, ledger, _ = g.run(command, mib, name)
    line = next((line for line in out.splitlines() if line.startswith(name + "\t")), None)
    return report.PathRow(name, mib, line, status, err, ledger)


def spread(g, work):
    with concurrent.futures.ThreadPoolExecutor(g.o.jobs) as pool:
        return [f.result() for f in [pool.submit(*w) for w in work]]


def job_limit_mib(g):
    for folder in ("/run/slurm-vgpu/self", os.environ.get("VGPU_STEP_DIR", "")):
        ledger = g.ledger(folder) if folder else None
        if ledger:
            return ledger[0] >> 20
    sys.exit("run.sh: --in-job: this is not a step with a GPU slice")


def paths_stage(g, mib):
    work = [(one_path, g, program, name, RACE_MIB if "race" in name and not g.o.in_job else mib) for program, name in all_paths(g)]
    # What managed memory takes is only seen on the device as a whole, so nobody else may take any.
    alone = [w for w in work if "Managed" in w[3]]
    rows = spread(g, [w for w in work if w not in alone]) + [one_path(*w[1:]) for w in alone]
    report.paths(rows, os.path.join(g.out, "paths.tsv"))


def whole_stage(g):
    names = [(program, name) for program, name in all_paths(g) if name in WHOLE]
    pairs = [(one_path(g, program, name, None), one_path(g, program, name, g.device_mib)) for program, name in names]
    report.whole(pairs, os.path.join(g.out, "whole.tsv"))


def one_framework(g, script, case, mib, upto):
    label = f"{script.removesuffix('_cases.py')} {case}"
    if mib is None and script == "jax_cases.py":
        os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.05"  # others need the GPU as well
    out, err, status, ledger, peak = g.run([sys.executable, g.path("frameworks/" + script), case, str(upto)], mib, label, several=case == "ddp")
    found = [line.split("\t")[1:] for line in out.splitlines() if line.startswith("ROW\t")]
    return report.FrameworkRow(label, mib, found, status, err, ledger, peak)


def frameworks_stage(g, mib):
    chosen = [f for f in FRAMEWORKS if wanted(g, " ".join(f))]
    upto = mib + 256
    limited = spread(g, [(one_framework, g, *f, mib, upto) for f in chosen])
    plain = [None] * len(chosen) if g.o.in_job else spread(g, [(one_framework, g, *f, None, upto) for f in chosen])
    report.frameworks(list(zip(limited, plain)), os.path.join(g.out, "frameworks.tsv"))


def main():
    o = options()
    stages = o.stage.split(",")
    if not o.in_job and os.geteuid() != 0:
        sys.exit("run.sh: only root can prepare a step; in a job use --in-job")
    if o.in_job:
        o.uid, o.jobs = os.getuid(), 1
    g = Ground(o)
    mib = job_limit_mib(g) if o.in_job else o.mem
    try:
        if "paths" in stages:
            paths_stage(g, mib)
        if "whole" in stages and not o.in_job:
            whole_stage(g)
        if "frameworks" in stages:
            frameworks_stage(g, mib)
    finally:
        if o.out is None:
            print(f"output of everything: {g.out}")
        else:
            shutil.rmtree(g.folder, ignore_errors=True)


main()
