# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""numba_cases.py CASE UPTO-MIB: Numba's own memory management."""

import gc
import sys

import numpy

# Names that NumPy has dropped and some releases of numba-cuda still ask for.
for old, new in (("row_stack", "vstack"), ("in1d", "isin"), ("trapz", "trapezoid")):
    if not hasattr(numpy, old):
        setattr(numpy, old, getattr(numpy, new))

from numba import cuda  # noqa: E402: it must find them

import probe  # noqa: E402

UPTO = int(sys.argv[2])


@cuda.jit
def square(values):
    i = cuda.grid(1)
    if i < values.size:
        values[i] = values[i] * values[i]


def checksum():
    values = cuda.to_device(numpy.arange(1 << 16, dtype=numpy.int64) % 7)
    square[256, 256](values)
    return int(values.copy_to_host().sum())


first = checksum()
cuda.synchronize()
memory = cuda.current_context().get_memory_info()
free, total = int(memory[0]), int(memory[1])
blocks, got, error = probe.fill(
    lambda n: cuda.device_array(n, dtype=numpy.uint8), lambda e: "OUT_OF_MEMORY" in str(e).upper() or isinstance(e, MemoryError), UPTO
)
probe.row("Numba", total, free, got, error, first)
del blocks
gc.collect()
cuda.current_context().deallocations.clear()
try:
    again = checksum()
except Exception as e:  # the row says what is really held then
    again, error = str(e)[:60], e
if again != first:
    probe.row("Numba afterwards", total, free, got, error, again)
