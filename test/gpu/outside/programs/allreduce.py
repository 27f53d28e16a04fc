# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""allreduce.py RANK BOARD: all-reduce of 16 MiB by NCCL in a loop, which writes its count into the board each time; see ../tenant.go."""
import mmap
import os
import struct
import sys
import time

import torch
import torch.distributed

BOARD_BYTES = 1 << 20
READY, STOP, DONE, PID = 0, 16, 64, 208
MOST_SECONDS = 90

rank = int(sys.argv[1])
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK=str(rank), WORLD_SIZE="2")
torch.cuda.set_device(rank)
torch.distributed.init_process_group("nccl")
with open(sys.argv[2], "r+b") as file:
    board = mmap.mmap(file.fileno(), BOARD_BYTES)
values = torch.ones(1 << 22, device="cuda")


def reduce():
    torch.distributed.all_reduce(values)
    torch.cuda.synchronize()


for _ in range(5):
    reduce()
struct.pack_into("<Q", board, PID, os.getpid())
struct.pack_into("<Q", board, READY, 1)
end = time.monotonic() + MOST_SECONDS
count = 0
while struct.unpack_from("<Q", board, STOP)[0] == 0 and time.monotonic() < end:
    reduce()
    count += 1
    struct.pack_into("<Q", board, DONE, count)
os._exit(0)  # the other rank may be gone
