# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""cupy_cases.py CASE UPTO-MIB: CuPy's pools."""

import sys

import cupy

import probe

CASE, UPTO = sys.argv[1], int(sys.argv[2])
if CASE == "async":
    pool = cupy.cuda.MemoryAsyncPool()
    cupy.cuda.set_allocator(pool.malloc)
elif CASE == "managed":
    pool = cupy.cuda.MemoryPool(cupy.cuda.malloc_managed)
    cupy.cuda.set_allocator(pool.malloc)
else:
    pool = cupy.get_default_memory_pool()
NAMES = {"pool": "CuPy", "async": "CuPy, asynchronous pool", "managed": "CuPy, managed memory"}


def checksum():
    """Small whole numbers: exact in every precision and order."""
    a = (cupy.arange(512 * 512) % 7).astype(cupy.float32).reshape(512, 512)
    return int((a @ a.T).astype(cupy.float64).sum())


def allocate(size):
    block = cupy.empty(size, dtype=cupy.uint8)
    block[-1:] = 1  # managed memory is taken when it is touched
    return block


first = checksum()
cupy.cuda.Device().synchronize()
free, total = cupy.cuda.runtime.memGetInfo()
blocks, got, error = probe.fill(
    allocate,
    lambda e: isinstance(e, cupy.cuda.memory.OutOfMemoryError) or "MemoryAllocation" in str(e),
    UPTO,
)
probe.row(NAMES[CASE], total, free, got, error, first)
del blocks
pool.free_all_blocks()
if checksum() != first:
    probe.row(NAMES[CASE] + " afterwards", total, free, got, error, "DIFFERS")
