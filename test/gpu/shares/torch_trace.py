# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""How long the GPU is busy with each piece of this process's work, by CUPTI's records of its kernels. NVML cannot tell whose a
kernel is, and work done tells it only where a piece takes as long beside others as alone, which the GPU's clocks decide. Tracing slows
the program down, but not its kernels: how many pieces a second it does is to be measured without."""

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

GAP_NS = 10_000  # what follows so soon was queued: the GPU went from one kernel to the next


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


def piece_ms(work, ends):
    """Of what work() does, which is all done when it returns: where launches go on while tracing starts or stops, the process soon
    ends with a free() on CUPTI's thread (PyTorch 2.11, CUDA 13.0, without the interposer too). ends(): when each piece was done until
    now, the last ones, by time.time_ns."""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as p:
        work()
    kernels = [(e.start_ns(), e.start_ns() + e.duration_ns()) for e in p.profiler.kineto_results.events() if e.device_type() == DeviceType.CUDA]
    # The first records may be missing. From the end of a piece to that of another all its kernels are there.
    seen_from, seen_to = min((a for a, _ in kernels), default=0), max((b for _, b in kernels), default=0)
    inside = [end for end in ends() if seen_from <= end <= seen_to]
    if len(inside) < 2:
        raise RuntimeError(f"{len(kernels)} kernels and the ends of {len(inside)} pieces")
    return stretches(kernels, inside[0], inside[-1]) / (len(inside) - 1) / 1e6
