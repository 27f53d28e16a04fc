# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Steps of jobs, and processes that work in them or, without the interposer, beside them."""

import array
import bisect
import mmap
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

from loads import LOADS
from witness import Witness

HERE = os.path.dirname(os.path.abspath(__file__))
KEEPER = ("vgpu-poller", "vgpu-keeper")  # the interposer's thread, and as it was called
HEAD_BYTES, ENTRIES = 64, 1 << 17  # page.h
MEM_MIB = 32768  # of every step: nothing here is to meet it
START_S = 120  # at most, until a process is ready
TRACE_S = 1.0  # a step of training has some hundred kernels, and what CUPTI says of each is gone through in Python
SETTLE_S = 0.6  # after a change, before a window


def now_ns():
    return time.monotonic_ns()


class Page:
    """What a load has done; see page.h."""

    def __init__(self, path, uid):
        with open(path, "wb") as f:
            f.truncate(HEAD_BYTES + 16 * ENTRIES)
        os.chown(path, uid, -1)
        with open(path, "r+b") as f:
            self.words = memoryview(mmap.mmap(f.fileno(), 0)).cast("Q")
        self.path = path

    def idle(self):
        return self.words[1] == 1

    def ends(self):
        """All pieces that are still on the page, oldest first: two arrays, when they ended and how long they took."""
        count = self.words[0]
        first = max(0, count - ENTRIES + 1024)  # the oldest may be written over meanwhile
        flat = array.array("Q", self.words[8:].tobytes())
        order = [i % ENTRIES for i in range(first, count)]
        return [flat[2 * i] for i in order], [flat[2 * i + 1] for i in order]

    def done(self, from_ns, to_ns):
        ends, _ = self.ends()
        return bisect.bisect_right(ends, to_ns) - bisect.bisect_right(ends, from_ns)

    def rate(self, from_ns, to_ns):
        """Pieces per second, from a whole piece's end to another's."""
        ends, _ = self.ends()
        a, b = bisect.bisect_right(ends, from_ns) - 1, bisect.bisect_right(ends, to_ns) - 1
        if a < 0 or ends[a] < from_ns - 10**9:
            a += 1
        return (b - a) * 1e9 / (ends[b] - ends[a]) if b > a >= 0 else 0.0

    def took_ms(self, from_ns, to_ns):
        ends, took = self.ends()
        a, b = bisect.bisect_right(ends, from_ns), bisect.bisect_right(ends, to_ns)
        return sorted(t / 1e6 for t in took[a:b])


class Step:
    """The only step of a job of its own."""

    def __init__(self, ground, cores, gpus=1, folder=None, uid=0, elastic=False):
        ground.jobs += 1
        self.ground, self.uid, self.job = ground, uid, ground.jobs
        command = [ground.mkstep, "--dir", folder or ground.folder, "--gpu", ",".join(ground.witness.uuids[:gpus]), "--mem", str(MEM_MIB),
                   "--device-mem", str(ground.witness.mib[0]), "--job", str(self.job), "--uid", str(uid), "--cores", str(cores)]
        command += ["--turns"] * (folder is not None) + ["--elastic"] * elastic
        self.folder = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def set(self, cores):
        subprocess.run([self.ground.mkstep, "--set", self.folder, "--cores", str(cores)], check=True)
        return now_ns()

    def meter(self):
        """The library's own figures, ns: GPU time used, waited, and when that was."""
        shown = subprocess.run([self.ground.mkstep, "--show", self.folder], check=True, capture_output=True, text=True)
        return [int(f) for f in shown.stdout.split()[5:8]]


def metered(before, after):
    """Percent of the GPU's time that was used between two answers of a step's meter."""
    return 100 * (after[0] - before[0]) / (after[2] - before[2])


class Worker:
    """A process that does one of the works it was started with while it is told to."""

    def __init__(self, ground, names, step=None):
        ground.workers += 1
        self.ground, self.names, self.step, self.made = ground, names, step, set()
        uid = step.uid if step else 0
        self.page = Page(os.path.join(ground.folder, f"page{ground.workers}"), uid)
        load = LOADS[names[0]]
        self.torch = load.torch and not ground.o.sim
        if self.torch:
            command = [sys.executable, os.path.join(ground.programs, "torch_load.py"), "--page", self.page.path]
        else:
            command = [ground.load, "--page", self.page.path, "--loops", f"{ground.loops_per_us:.3f}", *load.arguments]
            if step and ground.o.pretend:
                command += ["--pretend", os.path.join(step.folder, "limits")]
        self.process = subprocess.Popen(command, env=ground.environment(step), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        stderr=ground.log, user=uid, group=uid, extra_groups=[])
        ground.living.append(self)

    def said(self):
        ready, _, _ = select.select([self.process.stdout], [], [], START_S)
        if not ready:
            return f"nothing in {START_S} s"
        line = self.process.stdout.readline()
        if line:
            return line.strip()
        try:
            status = self.process.wait(timeout=START_S)
        except subprocess.TimeoutExpired:
            return "nothing any more"
        return "nothing, and ended with " + (f"signal {-status}" if status < 0 else f"status {status}")

    def expect(self, wanted):
        said = self.said()
        if said != wanted:
            raise RuntimeError(f"{self.names[0]}: said {said} instead of {wanted}")

    def ready(self):
        if "" not in self.made:
            self.expect("ready")
            self.made.add("")
        return self

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def go(self, name=None):
        """Starts the work; returns once it is warm."""
        self.ready()
        name = name or self.names[0]
        if self.torch and name not in self.made:
            self.tell(f"make {name}")
            self.expect(f"made {name}")
            self.made.add(name)
        self.tell(f"go {name}" if self.torch else "go")
        self.until(lambda: not self.page.idle(), "did not begin")  # or a stop right behind it would find it idle
        return self

    def until(self, said, complaint, seconds=20):
        give_up = time.monotonic() + seconds
        while not said():
            if time.monotonic() > give_up or self.process.poll() is not None:
                raise RuntimeError(f"{self.names[0]}: {complaint}")
            time.sleep(0.001)

    def stop(self):
        """Until nothing of it is under way."""
        self.tell("stop")
        self.until(self.page.idle, "did not stop")

    def traced(self):
        """How long the GPU was busy with a piece, in ms, while it traced."""
        said = self.said()
        if not said.startswith("traced "):
            raise RuntimeError(f"{self.names[0]}, tracing: said {said}")
        return float(said.split()[1])

    def keeper_ns(self):
        """CPU time of the interposer's thread; None when there is none."""
        for task in os.listdir(f"/proc/{self.process.pid}/task"):
            base = f"/proc/{self.process.pid}/task/{task}"
            try:
                if open(base + "/comm").read().strip() not in KEEPER:
                    continue
                if os.path.exists(base + "/schedstat"):
                    return int(open(base + "/schedstat").read().split()[0])
                fields = open(base + "/stat").read().rsplit(")", 1)[1].split()
                return (int(fields[11]) + int(fields[12])) * 10**9 // os.sysconf("SC_CLK_TCK")
            except OSError:
                continue
        return None

    def close(self):
        if self in self.ground.living:
            self.ground.living.remove(self)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def traced(workers, rates):
    """How much of the GPU's time the kernels of each take where so many pieces are done a second, in percent; None where nobody
    can tell. One after another, since who has traced does nothing else until it has gone through the records."""
    if not all(w.torch for w in workers):
        return None
    shares = []
    for w, rate in zip(workers, rates):
        w.tell(f"trace {TRACE_S}")
        shares.append(w.traced() * rate / 10)
    return shares


class Ground:
    def __init__(self, o):
        self.o = o
        self.folder = tempfile.mkdtemp(prefix="vgpu-shares-")
        os.chmod(self.folder, 0o755)
        self.out = o.out or os.path.join(self.folder, "out")
        os.makedirs(self.out, exist_ok=True)
        self.log = open(os.path.join(self.out, "stderr.txt"), "w")
        if o.sim:
            os.environ["SIMGPU_DIR"] = os.path.join(self.folder, "simgpu")
            subprocess.run([os.path.join(o.sim, "simgpu-init"), os.environ["SIMGPU_DIR"], f"devices={o.sim_gpus}", "memory_gb_s=2000", "host_gb_s=55", "switch_us=140",
                            "prepare_ns=600"], check=True)
            os.environ["LD_LIBRARY_PATH"] = os.path.abspath(o.sim)
        # Where any user can read them.
        self.programs = os.path.join(self.folder, "programs")
        shutil.copytree(HERE, self.programs, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(os.path.join(HERE, "../bench/nets.py"), self.programs)
        for name in ("mkstep", "load"):
            shutil.copy(os.path.join(o.build, name), self.programs)
        shutil.copy(o.library, os.path.join(self.programs, "libslurm-vgpu.so"))
        self.library = os.path.join(self.programs, "libslurm-vgpu.so")
        self.mkstep, self.load = os.path.join(self.programs, "mkstep"), os.path.join(self.programs, "load")
        self.witness = Witness(os.path.join(o.sim, "libnvidia-ml.so.1") if o.sim else "libnvidia-ml.so.1")
        self.jobs = self.workers = 0
        self.living = []
        self.pairs = 0
        self.loops_per_us = float(subprocess.run([self.load, "--calibrate"], env=self.environment(None), check=True, capture_output=True,
                                                 text=True, timeout=START_S).stdout)

    def environment(self, step):
        home = os.path.join(self.folder, f"home{step.uid if step else 0}")
        if not os.path.isdir(home):
            os.mkdir(home)
            os.chown(home, step.uid if step else 0, -1)
        e = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", HOME=home, CUDA_CACHE_PATH=home + "/nv", TORCHINDUCTOR_CACHE_DIR=home + "/inductor")
        e.pop("LD_PRELOAD", None)
        if not self.o.sim:
            e["CUDA_VISIBLE_DEVICES"] = ",".join(self.witness.uuids)
        if step:
            e.update(LD_PRELOAD=self.library, VGPU_STEP_DIR=step.folder)
        return e

    def turns_folder(self):
        """A node of its own: boards and claims of nobody else."""
        self.pairs += 1
        folder = os.path.join(self.folder, f"node{self.pairs}")
        os.mkdir(folder, 0o755)
        return folder

    def window(self, seconds):
        """Sleeps; from and to in ns, and for how many percent of it each GPU was at work by its counters."""
        counters = self.witness.counters
        marks = [c.mark() for c in counters]
        begin = now_ns()
        time.sleep(seconds)
        end = now_ns()
        return begin, end, [c.between(m, c.mark()) for c, m in zip(counters, marks)]

    def close(self):
        for w in list(self.living):
            w.close()
        self.witness.close()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
