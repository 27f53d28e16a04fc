# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""checkpoint.py PID: the driver's checkpoint of a process, step by step: the result of each and how long it took."""
import ctypes
import sys
import time

LOCK_MS = 2000  # after this long lock gives CUDA_ERROR_NOT_READY

cuda = ctypes.CDLL("libcuda.so.1")
pid = int(sys.argv[1])


def step(name, timeout_ms=0):
    arguments = ctypes.create_string_buffer(64)  # each step's is 64 bytes; that of lock begins with its time
    arguments[0:4] = timeout_ms.to_bytes(4, "little")
    began = time.monotonic()
    result = getattr(cuda, "cuCheckpointProcess" + name)(pid, arguments)
    print(f"{name} {result} ({time.monotonic() - began:.2f} s)", end="; ")
    return result == 0


print("init", cuda.cuInit(0), end="; ")
if step("Lock", LOCK_MS):
    if step("Checkpoint"):
        step("Restore")
    step("Unlock")
