#!/usr/bin/env python3
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the GPU busy with kernels of known length, and says what part of its time they took. Needs the
driver and nothing else."""

import argparse
import ctypes
import sys
import time

# By the GPU's clock. The simulated driver of slurm-vgpu knows the kernel by its name.
KERNEL = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry simgpu_busy_us(.param .u32 us)
{
.reg .u32 %r<2>;
.reg .u64 %t<4>;
.reg .pred %p<2>;
ld.param.u32 %r1, [us];
mul.wide.u32 %t1, %r1, 1000;
mov.u64 %t2, %globaltimer;
add.u64 %t1, %t1, %t2;
AGAIN:
mov.u64 %t3, %globaltimer;
setp.lt.u64 %p1, %t3, %t1;
@%p1 bra AGAIN;
ret;
}
"""


def call(cuda, name, *args):
    """Calls a driver function that is expected to succeed."""
    result = getattr(cuda, name)(*args)
    if result != 0:
        sys.exit(f"busy.py: {name}: error {result}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--us", type=int, default=1000, help="length of a kernel")
    parser.add_argument("--for", type=int, default=1000, dest="ms", help="so many milliseconds")
    parser.add_argument("--rest", type=int, default=0, help="sleep for so many microseconds after each kernel")
    parser.add_argument("--ahead", type=int, default=8, help="kernels that are launched before the first is done")
    args = parser.parse_args()

    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as problem:
        sys.exit(f"busy.py: {problem}")
    call(cuda, "cuInit", 0)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call(cuda, "cuDeviceGet", ctypes.byref(device), 0)
    call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call(cuda, "cuCtxSetCurrent", context)
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    call(cuda, "cuModuleLoadData", ctypes.byref(module), KERNEL)
    call(cuda, "cuModuleGetFunction", ctypes.byref(kernel), module, b"simgpu_busy_us")
    length = ctypes.c_uint(args.us)
    params = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(length), ctypes.c_void_p))
    events = [ctypes.c_void_p() for _ in range(1 if args.rest else args.ahead)]
    for event in events:
        call(cuda, "cuEventCreate", ctypes.byref(event), 2)

    launched, done, since = 0, 0, time.monotonic()
    while True:
        ending = time.monotonic() - since >= args.ms / 1000
        if not ending and launched - done < len(events):
            call(cuda, "cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, params, None)
            call(cuda, "cuEventRecord", events[launched % len(events)], None)
            launched += 1
        elif done < launched:
            call(cuda, "cuEventSynchronize", events[done % len(events)])
            done += 1
            time.sleep(args.rest / 1e6)
        else:
            break
    ran = time.monotonic() - since
    print(f"busy for {done * args.us / ran / 1e4:.1f} % of {ran:.2f} s: {done} kernels of {args.us} us")


if __name__ == "__main__":
    main()
