#!/usr/bin/env python3
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch sees of a slice, and where it ends. With a file's name it then holds what it has
until that file exists."""

import os
import sys
import time

import torch

MIB = 1 << 20
free, total = torch.cuda.mem_get_info()
print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name(0)}")
print(f"torch.cuda.mem_get_info(): free {free // MIB} MiB, total {total // MIB} MiB")

blocks = []
try:
    while True:
        blocks.append(torch.empty(64 * MIB, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError as error:
    print(f"torch.OutOfMemoryError after {64 * len(blocks)} MiB: {str(error).splitlines()[0]}")

while len(sys.argv) > 1 and not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
