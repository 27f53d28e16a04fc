# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""How much of some time this process had kernels on the GPU, by CUPTI's records of them. NVML cannot tell whose a kernel is,
and work done tells it only where a piece takes as long beside others as alone, which the GPU's clocks decide."""

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


def busy(seconds):
    """Percent; what other threads launch is seen as well."""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as p:
        begin = time.time_ns()
        time.sleep(seconds)
        end = time.time_ns()
    kernels = [(e.start_ns(), e.start_ns() + e.duration_ns()) for e in p.profiler.kineto_results.events() if e.device_type() == DeviceType.CUDA]
    return 100 * stretches(kernels, begin, end) / (end - begin)
