# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Small programs of frameworks, for guard.sh: each prints one line at its end."""

import os
import sys


def torch_limit():
    import torch
    held = []
    try:
        while len(held) < 100:
            held.append(torch.empty(100 << 20, dtype=torch.uint8, device="cuda"))
        print("no limit in", len(held) * 100, "MiB")
    except torch.OutOfMemoryError:
        print("out of memory at", len(held) * 100, "MiB")


def torch_compile():
    import torch
    compiled = torch.compile(lambda a, b: (a @ b).relu().sin() + 1)
    a = torch.randn(256, 256, device="cuda")
    want = (a @ a).relu().sin() + 1
    print("compiled" if torch.allclose(compiled(a, a), want, atol=1e-2) else "compiled wrongly")


def torch_profile():
    import torch
    from torch.profiler import ProfilerActivity, profile
    a = torch.randn(256, 256, device="cuda")
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as traced:
        (a @ a).sum().item()
    kernels = sum(1 for event in traced.events() if str(event.device_type).endswith("CUDA"))
    print(kernels, "kernels traced" if kernels else "no kernel was traced")


def jax_sum():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    print("summed", float(jax.numpy.ones((100, 100)).sum()), "on", jax.devices()[0].device_kind)


def cupy_sum():
    import cupy
    free, total = cupy.cuda.runtime.memGetInfo()
    print("summed", float(cupy.ones(1000).sum()), free, "of", total, "bytes free")


def nccl():
    import torch
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("nccl")
    x = torch.ones(10, device="cuda")
    dist.all_reduce(x)
    print("reduced", float(x.sum()))
    dist.destroy_process_group()


{"torch": torch_limit, "compile": torch_compile, "profile": torch_profile, "jax": jax_sum, "cupy": cupy_sum, "nccl": nccl}[sys.argv[1]]()
