# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""The workloads. Those in PyTorch are in torch_load.py; on the simulated driver kernels of about the
same length stand in for them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    title: str
    arguments: tuple  # of the program "load"; of a PyTorch workload: of what stands in for it
    torch: bool = False
    piece_us: int = 0  # length of a piece of work, where it is known
    copies: bool = False  # NVML counts them too, a share does not: judged by counted kernels
    steady: bool = False  # a piece takes as long under a share as without one, since the clocks are the same: the native run tells how long


LOADS = {
    "matmul_bf16": Load("8192 bf16 matmul", ("--us", "1400"), torch=True),
    "matmul_fp32": Load("4096 fp32 matmul", ("--us", "2700"), torch=True, steady=True),
    "elementwise": Load("1 GiB elementwise", ("--us", "500"), torch=True, steady=True),
    "training": Load("ResNet-18 training", ("--us", "180", "--kernels", "60", "--deep", "2"), torch=True, steady=True),
    "decode": Load("decode, eager", ("--us", "8", "--kernels", "200", "--gap", "4", "--deep", "2"), torch=True),
    "decode_graph": Load("decode, CUDA graph", ("--us", "1200", "--deep", "4"), torch=True, steady=True),
    "mlp": Load("launch-bound MLP", ("--us", "5", "--kernels", "100", "--gap", "18", "--deep", "2"), torch=True),
    "long": Load("40 ms kernels", ("--us", "40000", "--deep", "2"), piece_us=40000),
    "queue": Load("500-deep queue, 1 ms", ("--us", "1000", "--deep", "500"), piece_us=1000),
    "streams": Load("4 streams, 1 ms each", ("--us", "1000", "--streams", "4", "--deep", "16", "--blocks", "16")),
    "copies": Load("64 MiB copy + 1 ms", ("--us", "1000", "--copy", "64", "--deep", "4"), piece_us=1000, copies=True),
    # Only when asked for: work of the GPU that is no kernel of the program's.
    "fills": Load("fills of 4 GiB", ("--kernels", "0", "--fill", "4096", "--deep", "4")),
    "moves": Load("copies of 1 GiB within the GPU", ("--kernels", "0", "--move", "1024", "--deep", "4")),
    "rows": Load("copies of 512 MiB within the GPU in rows of 4 KiB",
                 ("--kernels", "0", "--move", "1024", "--rows", "8192", "--deep", "4")),
    "lists": Load("lists of 64 copies of 16 MiB within the GPU", ("--kernels", "0", "--move", "1024", "--list", "64", "--deep", "4")),
    # Work that waits: for the host, and for another stream's work.
    "called": Load("1 ms kernels, each behind 1 ms of the host's work", ("--us", "1000", "--call", "1000", "--deep", "4"), piece_us=1000),
    "chain": Load("2 streams by turns, 1 ms each", ("--us", "1000", "--streams", "2", "--chain", "--deep", "16"), piece_us=1000),
    "chain_short": Load("2 streams by turns, 50 µs each",
                        ("--us", "50", "--streams", "2", "--chain", "--deep", "64"), piece_us=50),
    "hidden": Load("8 ms kernels, 10 us ones beside",
                   ("--us", "8000", "--deep", "1", "--duty", "9000", "--blocks", "16", "--beside", "10"), piece_us=8000),
    # Kernels that take little more than launching them.
    "short": Load("10 us kernels as fast as the GPU does them", ("--us", "10", "--kernels", "100", "--gap", "6", "--deep", "2")),
    "apart": Load("5 us kernels, 15 us apart", ("--us", "5", "--kernels", "100", "--gap", "12", "--deep", "2")),
    "uneven": Load("1 ms kernels, 10 us ones of the same shape beside",
                   ("--us", "1000", "--deep", "1", "--duty", "2000", "--blocks", "16", "--beside", "10"), piece_us=1000),
    # For pairs and latency, not in the table of singles.
    "spin": Load("1 ms kernels", ("--us", "1000", "--deep", "8"), piece_us=1000),
    "request": Load("requests of 5 ms, one after another", ("--us", "1000", "--kernels", "5", "--deep", "1"), piece_us=5000),
    "request_40": Load("requests of 5 ms, 40 per second",
                       ("--us", "1000", "--kernels", "5", "--deep", "256", "--rate", "40"), piece_us=5000),
    # Known shares of the GPU, to see what the witness reads; out of step with its samples.
    "duty_10": Load("10.0 % by the clock", ("--us", "3000", "--duty", "30000"), piece_us=3000),
    "duty_25": Load("25.0 % by the clock", ("--us", "7000", "--duty", "28000"), piece_us=7000),
    "duty_75": Load("75.0 % by the clock", ("--us", "9000", "--duty", "12000"), piece_us=9000),
}

SINGLES = ("matmul_bf16", "matmul_fp32", "elementwise", "training", "decode", "decode_graph", "mlp", "long", "queue", "streams", "copies")
