# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""How long the GPU is busy with each piece of this process's work, by CUPTI's records of its kernels. NVML cannot tell whose a
kernel is, and work done tells it only where a piece takes as long beside others as alone, which the GPU's clocks decide. Tracing slows
the program down, but not its kernels: how many pieces a second it does is to be measured without."""

import time

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

GAP_NS = 50_000  # what follows so soon was queued: the GPU went from one kernel to the next


def stretches(kernels, begin, end):
    """Nanoseconds from begin to end that are within kernels, or between two of them that follow at once."""
    total, from_ns, to_ns = 0, None, None
    for a, b in sorted((max(a, begin), min(b, end)) for a, b in kernels if b > begin and a < end):
        if to_ns is not None and a <= to_ns + GAP_NS:
            to_ns = max(to_ns, b)
            continue
        total += to_ns - from_ns if to_ns is not None else 0
        from_ns, to_ns = a, b
    return total + (to_ns - from_ns if to_ns is not None else 0)


def piece_ms(seconds, ended):
    """Of what ends within so many seconds. ended(): how many pieces are done, and when the last was, by time.time_ns."""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as p:
        give_up, before = time.monotonic() + seconds, ended()
        while (first := ended())[0] == before[0] and time.monotonic() < give_up:  # from the end of one whose kernels were seen
            time.sleep(0.001)
        time.sleep(seconds)
        last = ended()
    if last[0] == first[0]:
        raise RuntimeError(f"no piece was done in {seconds:.1f} s")
    kernels = [(e.start_ns(), e.start_ns() + e.duration_ns()) for e in p.profiler.kineto_results.events() if e.device_type() == DeviceType.CUDA]
    busy_ns = stretches(kernels, first[1], last[1])
    if busy_ns == 0:
        raise RuntimeError(f"none of {len(kernels)} kernels lies where {last[0] - first[0]} pieces were done")
    return busy_ns / (last[0] - first[0]) / 1e6
