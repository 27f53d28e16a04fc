# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""torch_tenant.py decode|mlp|train|small BOARD: a PyTorch load that counts its steps into a board; see ../gauge/board.go. Where the board has
no step's length yet it measures its own, alone."""
import mmap
import struct
import sys
import time

import torch
import torch_load

BOARD_BYTES = 1 << 20
READY, GO, STOP, STEP_MS, LOOPS, DONE, REQUESTS, LATENCIES = 0, 8, 16, 24, 32, 64, 192, 4096
MOST_LATENCIES = 200000
MOST_SECONDS = 300
WARM_STEPS, MEASURED_SECONDS = 20, 2.0

with open(sys.argv[2], "r+b") as file:
    board = mmap.mmap(file.fileno(), BOARD_BYTES)
step = {"decode": torch_load.decode, "mlp": torch_load.mlp, "train": torch_load.train, "small": torch_load.small}[sys.argv[1]]()


def word(at):
    return struct.unpack_from("<Q", board, at)[0]


for _ in range(WARM_STEPS):
    step()
torch.cuda.synchronize()
if not word(LOOPS):
    began, steps = time.monotonic(), 0
    while time.monotonic() - began < MEASURED_SECONDS:
        step()
        steps += 1
    torch.cuda.synchronize()
    struct.pack_into("<d", board, STEP_MS, 1e3 * (time.monotonic() - began) / steps)
    struct.pack_into("<Q", board, LOOPS, 1)
struct.pack_into("<Q", board, READY, 1)
end = time.monotonic() + MOST_SECONDS
while not word(GO) and not word(STOP):
    time.sleep(0.0002)
count = 0
while not word(STOP) and time.monotonic() < end:
    began = time.monotonic()
    step()
    struct.pack_into("<f", board, LATENCIES + 4 * (count % MOST_LATENCIES), 1e3 * (time.monotonic() - began))
    count += 1
    struct.pack_into("<Q", board, REQUESTS, count)
    struct.pack_into("<Q", board, DONE, count)
