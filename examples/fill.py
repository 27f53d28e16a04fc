#!/usr/bin/env python3
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Takes GPU memory until CUDA refuses, and says how much it got. Needs the driver and nothing else."""

import argparse
import ctypes
import sys
import time

MIB = 1 << 20
OUT_OF_MEMORY = 2


def call(cuda, name, *args):
    """Calls a driver function that is expected to succeed."""
    result = getattr(cuda, name)(*args)
    if result != 0:
        sys.exit(f"fill.py: {name}: {error_name(cuda, result)} ({result})")


def error_name(cuda, result):
    name = ctypes.c_char_p()
    if cuda.cuGetErrorName(result, ctypes.byref(name)) != 0:
        return "unknown error"
    return name.value.decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", type=int, default=64, help="MiB to take at a time")
    parser.add_argument("--upto", type=int, default=0, help="stop at so many MiB; 0: when refused")
    parser.add_argument("--hold", type=float, default=0, help="keep it for so many seconds")
    parser.add_argument("--device", type=int, default=0, help="CUDA ordinal")
    args = parser.parse_args()

    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as problem:
        sys.exit(f"fill.py: {problem}")
    call(cuda, "cuInit", 0)
    device = ctypes.c_int()
    call(cuda, "cuDeviceGet", ctypes.byref(device), args.device)
    name = ctypes.create_string_buffer(128)
    call(cuda, "cuDeviceGetName", name, len(name), device)
    context = ctypes.c_void_p()
    call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call(cuda, "cuCtxSetCurrent", context)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call(cuda, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    print(f"{name.value.decode()}: total {total.value // MIB} MiB, free {free.value // MIB} MiB", flush=True)

    got, result = 0, 0
    while args.upto == 0 or got < args.upto:
        step = args.step if args.upto == 0 else min(args.step, args.upto - got)
        pointer = ctypes.c_uint64()
        result = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(step * MIB))
        if result != 0:
            break
        got += step
    how = error_name(cuda, result) if result != 0 else "stopped as asked"
    print(f"{how} after {got} MiB in steps of {args.step} MiB (malloc)", flush=True)
    time.sleep(args.hold)
    return 0 if result in (0, OUT_OF_MEMORY) else 1


if __name__ == "__main__":
    sys.exit(main())
