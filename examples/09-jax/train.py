#!/usr/bin/env python3
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""What JAX sees of a slice, and a fit in it."""

import sys

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit("skip: JAX is not installed for this python3; activate it in run.sbatch")
if jax.default_backend() != "gpu":
    sys.exit(f"skip: JAX {jax.__version__} finds no GPU it can use in this job")

MIB = 1 << 20
stats = jax.devices()[0].memory_stats()
print(f"JAX {jax.__version__} on {len(jax.devices())} GPU")
print(f"JAX may use {stats['bytes_limit'] // MIB} MiB")

inputs = jax.random.normal(jax.random.key(0), (4096, 64))
targets = inputs @ jnp.arange(64.0)


@jax.jit
def step(weights):
    loss, slope = jax.value_and_grad(lambda w: jnp.mean((inputs @ w - targets) ** 2))(weights)
    return weights - 0.1 * slope, loss


weights = jnp.zeros(64)
for number in range(201):
    weights, loss = step(weights)
    if number % 100 == 0:
        print(f"step {number}: loss {float(loss):.4f}")
