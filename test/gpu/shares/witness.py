# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""What NVML says of how busy the GPUs are, from outside: this process has no interposer. NVML keeps
samples of a fixed length (200 ms on an H200) with the percentage of it in which a kernel ran."""

import ctypes
import threading
import time

from counters import Counters

UTILISATION = 1  # NVML_GPU_UTILIZATION_SAMPLES
MOST_SAMPLES = 4096
LONGEST_S = 1.0  # between two samples; what is further apart was not seen


class Sample(ctypes.Structure):
    _fields_ = [("stamp_us", ctypes.c_ulonglong), ("value", ctypes.c_uint), ("rest", ctypes.c_uint)]


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Witness:
    """Collects in a thread; times asked for are nanoseconds of the monotonic clock."""

    def __init__(self, library="libnvidia-ml.so.1"):
        self.nvml = ctypes.CDLL(library)
        self.check("nvmlInit_v2")
        count = ctypes.c_uint()
        self.check("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self.devices, self.uuids, self.mib = [], [], []
        for i in range(count.value):
            device, uuid, memory = ctypes.c_void_p(), ctypes.create_string_buffer(96), Memory()
            self.check("nvmlDeviceGetHandleByIndex_v2", i, ctypes.byref(device))
            self.check("nvmlDeviceGetUUID", device, uuid, 96)
            self.check("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
            self.devices.append(device)
            self.uuids.append(uuid.value.decode())
            self.mib.append(memory.total >> 20)
        self.counters = [Counters(self.nvml, device) for device in self.devices]
        self.samples = [[] for _ in self.devices]  # of each GPU: begin and end in ns, busy percent
        self.to_monotonic_ns = time.monotonic_ns() - time.time_ns()
        self.broken = None
        self.ended = False
        self.thread = threading.Thread(target=self.collect, daemon=True)
        self.thread.start()

    def check(self, name, *args):
        result = getattr(self.nvml, name)(*args)
        if result != 0:
            raise OSError(f"{name}: NVML error {result}")

    def collect(self):
        last = [0] * len(self.devices)
        room = (Sample * MOST_SAMPLES)()
        while not self.ended:
            for i, device in enumerate(self.devices):
                kind, count = ctypes.c_int(), ctypes.c_uint(MOST_SAMPLES)
                result = self.nvml.nvmlDeviceGetSamples(device, UTILISATION, ctypes.c_ulonglong(last[i]), ctypes.byref(kind),
                                                        ctypes.byref(count), room)
                if result == 6:  # nothing new
                    continue
                if result != 0:
                    self.broken = f"nvmlDeviceGetSamples: NVML error {result}"
                    continue
                for s in sorted((s.stamp_us, s.value) for s in room[:count.value]):
                    if s[0] <= last[i]:
                        continue
                    end = s[0] * 1000 + self.to_monotonic_ns
                    begin = last[i] * 1000 + self.to_monotonic_ns
                    if last[i] != 0 and end - begin < LONGEST_S * 1e9:
                        self.samples[i].append((begin, end, s[1]))
                    last[i] = s[0]
            time.sleep(0.05)

    def wait(self, until_ns, seconds=2.0):
        """Until samples reach that time; False when they do not come."""
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            if all(s and s[-1][1] >= until_ns for s in self.samples):
                return True
            time.sleep(0.02)
        return False

    def mean(self, from_ns, to_ns, gpu=0):
        """Busy percent; a sample that is cut counts in proportion. None: nothing was seen."""
        busy = seen = 0
        for begin, end, value in reversed(self.samples[gpu]):
            if end <= from_ns:
                break
            inside = min(end, to_ns) - max(begin, from_ns)
            if inside > 0:
                busy, seen = busy + inside * value, seen + inside
        return busy / seen if seen > 0.5 * (to_ns - from_ns) else None

    def seconds(self, from_ns, to_ns, gpu=0):
        """The means of each whole second."""
        means = [self.mean(t, t + 10**9, gpu) for t in range(from_ns, to_ns - 10**9 + 1, 10**9)]
        return [m for m in means if m is not None]

    def fine(self, from_ns, to_ns, gpu=0):
        """Whole samples between the two: end in ns and percent."""
        return [(end, value) for begin, end, value in self.samples[gpu] if begin >= from_ns and end <= to_ns]

    def close(self):
        self.ended = True
        self.thread.join(1)
