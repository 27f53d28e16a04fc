# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""jax_cases.py CASE UPTO-MIB: JAX with memory taken at the start, and as it is needed."""

import os
import sys

CASE, UPTO = sys.argv[1], int(sys.argv[2])
os.environ.setdefault("JAX_PLATFORMS", "cuda")
if CASE == "grow":
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
elif CASE == "platform":
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"
elif CASE == "async":
    os.environ["TF_GPU_ALLOCATOR"] = "cuda_malloc_async"
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "cuda_async"

import jax  # noqa: E402: it reads the environment when it is imported
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402

import probe  # noqa: E402

NAMES = {
    "preallocate": "JAX, preallocating",
    "grow": "JAX, not preallocating",
    "platform": "JAX, platform allocator",
    "async": "JAX, cuda_async allocator",
}


@jax.jit
def product_sum(a):
    return (a @ a.T).sum(dtype=jnp.float32)


def checksum():
    """Small whole numbers: exact in every precision and order."""
    a = (jnp.arange(128 * 128) % 7).astype(jnp.float32).reshape(128, 128)
    return int(product_sum(a))


first = checksum()
device = jax.local_devices()[0]
stats = device.memory_stats() or {}
total = stats.get("bytes_limit")
free = None if total is None else total - stats.get("bytes_in_use", 0)
# Each size is compiled once, not once per block.
zeros = jax.jit(lambda n: jnp.zeros(n, jnp.uint8), static_argnums=0)
blocks, got, error = probe.fill(
    lambda n: zeros(n).block_until_ready(), lambda e: "RESOURCE_EXHAUSTED" in str(e) or "out of memory" in str(e).lower(), UPTO
)
probe.row(NAMES[CASE], total, free, got, error, first, "" if not blocks else f"a block of {int(numpy.asarray(blocks[0]).max())}")
del blocks
if checksum() != first:
    probe.row(NAMES[CASE] + " afterwards", total, free, got, error, "DIFFERS")
