# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""bystander.py SECONDS [MIB]: a context, cuMemAlloc and cuMemFree of 64 MiB or so many, one at a time, and now and then a new context; how long they take."""
import ctypes
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")
ALLOCATED = ctypes.c_size_t((int(sys.argv[2]) if len(sys.argv) > 2 else 64) << 20)
BETWEEN_CONTEXTS = 0.7


def tried(result, what):
    if result:
        sys.exit(f"bystander.py: {what}: error {result}")


def timed(*calls):
    began = time.monotonic()
    for call in calls:
        tried(call(), "a call of the driver")
    return time.monotonic() - began


def main(seconds):
    tried(cuda.cuInit(0), "cuInit")
    primary = ctypes.c_void_p()
    first = timed(lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(primary), 0))
    cuda.cuCtxSetCurrent(primary)
    pairs, contexts = [], []
    end = time.monotonic() + seconds
    next_context = time.monotonic()
    while time.monotonic() < end:
        address = ctypes.c_uint64()
        pairs.append(timed(lambda: cuda.cuMemAlloc_v2(ctypes.byref(address), ALLOCATED), lambda: cuda.cuMemFree_v2(address)))
        if time.monotonic() > next_context:
            made = ctypes.c_void_p()
            contexts.append(timed(lambda: cuda.cuCtxCreate_v2(ctypes.byref(made), 0, 0), lambda: cuda.cuCtxDestroy_v2(made)))
            next_context = time.monotonic() + BETWEEN_CONTEXTS
            cuda.cuCtxSetCurrent(primary)

    def quantile(times, part):
        return sorted(times)[min(len(times) - 1, int(part * len(times)))] * 1e3

    print(f"allocated and freed {len(pairs)} times, p50 {quantile(pairs, .5):.3f} p99 {quantile(pairs, .99):.3f} ms,",
          f"{len(contexts)} contexts, p50 {quantile(contexts, .5):.0f} most {max(contexts) * 1e3:.0f} ms, the first {first * 1e3:.0f} ms")


main(float(sys.argv[1]))
