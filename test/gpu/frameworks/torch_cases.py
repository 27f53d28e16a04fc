# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""torch_cases.py CASE UPTO-MIB: PyTorch's allocators, graphs, compiler, workers and NCCL."""

import os
import sys

CASE, UPTO = sys.argv[1], int(sys.argv[2])
CONFIG = {"expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}.get(CASE)
if CONFIG:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = CONFIG
    os.environ["PYTORCH_ALLOC_CONF"] = CONFIG

import torch  # noqa: E402: the allocator is chosen by the environment before the import
import torch.multiprocessing as mp  # noqa: E402

import probe  # noqa: E402


def checksum():
    """Small whole numbers: exact in every precision and order."""
    a = (torch.arange(512 * 512, device="cuda") % 7).float().reshape(512, 512)
    return int((a @ a.T).double().sum().item())


def basic():
    return checksum(), ""


def graphs():
    net = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).cuda()
    x = torch.randn(256, 1024, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            net(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        y = net(x)
    x.copy_(torch.randn(256, 1024, device="cuda"))
    for _ in range(10):
        graph.replay()
    torch.cuda.synchronize()
    with torch.no_grad():
        same = torch.allclose(y, net(x), rtol=1e-4, atol=1e-4)
    return checksum(), "graph = eager" if same else "GRAPH DIFFERS FROM EAGER"


def compiled():
    def f(x, w):
        return (torch.relu(x @ w) * 2 + 1).sum(1)

    x, w = torch.randn(512, 512, device="cuda"), torch.randn(512, 512, device="cuda")
    same = torch.allclose(torch.compile(f)(x, w), f(x, w), rtol=1e-3, atol=1e-3)
    return checksum(), "compiled = eager" if same else "COMPILED DIFFERS FROM EAGER"


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.full((1024,), i, dtype=torch.float32)


def loader(method):
    torch.ones(1, device="cuda")
    batches = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context=method)
    total = sum(int(b.cuda(non_blocking=True).sum().item()) for b in batches)
    return checksum(), f"loaded {total}" if total == 64 * 63 // 2 * 1024 else f"LOADED {total}"


def send_tensor(queue, done):
    queue.put(torch.full((16 * probe.MIB,), 3, dtype=torch.int32, device="cuda"))
    done.wait()


def passed():
    """A tensor of another process, by CUDA IPC."""
    context = mp.get_context("spawn")
    queue, done = context.Queue(), context.Event()
    other = context.Process(target=send_tensor, args=(queue, done))
    other.start()
    tensor = queue.get(timeout=60)
    total = int(tensor.sum().item())
    del tensor
    done.set()
    other.join()
    return checksum(), "passed" if total == 3 * 16 * probe.MIB else f"PASSED {total}"


def rank_main(rank, world, upto):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", rank=rank, world_size=world)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512, bias=False).cuda(), device_ids=[rank])
    torch.nn.init.constant_(net.module.weight, 0.5)
    net(torch.full((8, 512), float(rank + 1), device="cuda")).sum().backward()
    want = 8 * sum(range(1, world + 1)) / world
    ones = torch.ones(1024, device="cuda")
    torch.distributed.all_reduce(ones)
    same = bool((net.module.weight.grad == want).all()) and int(ones.sum().item()) == 1024 * world
    if rank == 0:
        finish(f"PyTorch DDP, NCCL, {world} GPU", checksum(), "gradients right" if same else "GRADIENTS WRONG", upto)
    torch.distributed.barrier(device_ids=[rank])
    torch.distributed.destroy_process_group()


def finish(name, total_sum, note, upto):
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    blocks, got, error = probe.fill(
        lambda n: torch.empty(n, dtype=torch.uint8, device="cuda"), lambda e: isinstance(e, torch.OutOfMemoryError), upto
    )
    probe.row(name, total, free, got, error, total_sum, note)
    del blocks
    torch.cuda.empty_cache()
    if checksum() != total_sum:
        probe.row(name + " afterwards", total, free, got, error, "DIFFERS")


CASES = {
    "native": ("PyTorch", basic),
    "expandable": ("PyTorch expandable_segments", basic),
    "async": ("PyTorch cudaMallocAsync", basic),
    "graphs": ("PyTorch CUDA graph", graphs),
    "compile": ("PyTorch torch.compile", compiled),
    "loader-fork": ("PyTorch DataLoader, fork", lambda: loader("fork")),
    "loader-spawn": ("PyTorch DataLoader, spawn", lambda: loader("spawn")),
    "ipc": ("PyTorch tensor of another process", passed),
}

if __name__ == "__main__":
    if CASE == "ddp":
        world = min(2, torch.cuda.device_count())
        mp.spawn(rank_main, args=(world, UPTO), nprocs=world)
    else:
        title, run = CASES[CASE]
        finish(title, *run(), UPTO)
