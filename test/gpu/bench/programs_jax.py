# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""The same in JAX: see programs_torch.py."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402


def training(layers=24, width=512, batch=64):
    """Adam by hand, all of a step compiled."""
    keys = jax.random.split(jax.random.PRNGKey(0), layers)
    weights = [jax.random.normal(key, (width, width)) / width ** 0.5 for key in keys]
    state = (weights, [jnp.zeros_like(w) for w in weights], [jnp.zeros_like(w) for w in weights])
    x = jax.random.normal(jax.random.PRNGKey(1), (batch, width))

    def loss(weights):
        y = x
        for w in weights:
            y = y + jax.nn.gelu(y @ w)
            y = (y - y.mean(-1, keepdims=True)) / (y.std(-1, keepdims=True) + 1e-5)
        return jnp.mean((y - 1) ** 2)

    @jax.jit
    def update(state):
        weights, first, second = state
        gradient = jax.grad(loss)(weights)
        first = [0.9 * m + 0.1 * g for m, g in zip(first, gradient)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(second, gradient)]
        return [w - 1e-4 * m / (jnp.sqrt(v) + 1e-8) for w, m, v in zip(weights, first, second)], first, second

    def step():
        nonlocal state
        state = update(state)

    return step, lambda: jax.block_until_ready(state)


makers = {"training": training}
