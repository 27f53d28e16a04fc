#!/usr/bin/env python3
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch sees of a slice: its size, a training loop in it, and its end."""

import sys

try:
    import torch
except ImportError:
    sys.exit("train.py: PyTorch is not installed for this python3; activate it in run.sbatch")
if not torch.cuda.is_available():
    sys.exit(f"train.py: PyTorch {torch.__version__} finds no GPU it can use in this job")

MIB = 1 << 20

free, total = torch.cuda.mem_get_info()
print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name(0)}")
print(f"mem_get_info: total {total // MIB} MiB, free {free // MIB} MiB")

torch.manual_seed(0)
inputs = torch.randn(4096, 64, device="cuda")
targets = inputs.pow(2).sum(dim=1, keepdim=True) / 64
model = torch.nn.Sequential(
    torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)
).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(201):
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step}: loss {loss.item():.4f}")

blocks = []
try:
    while True:
        blocks.append(torch.empty(64 * MIB, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError as refusal:
    print(f"OutOfMemoryError after {64 * len(blocks)} MiB")
    print(str(refusal).split(" Of the allocated", maxsplit=1)[0])

# The error is an ordinary one: with memory given back, the program goes on.
blocks.clear()
torch.cuda.empty_cache()
print(f"after empty_cache: free {torch.cuda.mem_get_info()[0] // MIB} MiB")
