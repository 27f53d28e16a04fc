# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""torch_load.py decode|mlp|train|small SECONDS NVML-INDEX: one PyTorch load alone: how long its kernels ran by the profiler, against GPM in the
same seconds."""
import sys
import time

import pynvml
import torch
from torch.profiler import ProfilerActivity, profile

torch.manual_seed(0)
HALF = {"device": "cuda", "dtype": torch.half}
LEFT_OUT_US = 0.5e6, 0.4e6  # of the profiler's time, at its beginning and its end


def decode():
    """One token: small matrices, one synchronisation."""
    weights = [torch.randn(2048, 2048, **HALF) for _ in range(48)]
    x = torch.randn(1, 2048, **HALF)

    def step():
        y = x
        for w in weights:
            y = torch.nn.functional.relu(y @ w) * 0.02
        return float(y[0, 0])
    return step


def mlp():
    net = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096, **HALF) for _ in range(8)])
    x = torch.randn(4096, 4096, **HALF)

    def step():
        with torch.no_grad():
            net(x)
        torch.cuda.synchronize()
    return step


def train():
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, device="cuda")
    net = torch.nn.TransformerEncoder(layer, 4).to("cuda")
    optimizer = torch.optim.AdamW(net.parameters())
    x = torch.randn(32, 128, 512)

    def step():
        loss = net(x.to("cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss)
    return step


def small():
    """Some 2 ms of many tiny kernels, then 2 ms of sleep."""
    a = torch.randn(64, 64, device="cuda")

    def step():
        for _ in range(200):
            a.mul_(1.0001)
        torch.cuda.synchronize()
        time.sleep(0.002)
    return step


def gpm_sample(handle):
    sample = pynvml.nvmlGpmSampleAlloc()
    pynvml.nvmlGpmSampleGet(handle, sample)
    return sample


def engine(first, last):
    get = pynvml.c_nvmlGpmMetricsGet_t()
    get.version, get.numMetrics, get.sample1, get.sample2 = 1, 1, first, last
    get.metrics[0].metricId = 1  # NVML_GPM_METRIC_GRAPHICS_UTIL
    pynvml.nvmlGpmMetricsGet(get)
    return get.metrics[0].value


def run(step, seconds, handle):
    """Steps for some seconds, and GPM between two samples in their middle."""
    began = time.monotonic()
    first = last = None
    while time.monotonic() - began < seconds + 1:
        step()
        if first is None and time.monotonic() - began > 0.5:
            first, at = gpm_sample(handle), time.monotonic()
        elif first is not None and last is None and time.monotonic() - at > seconds:
            last = gpm_sample(handle)
    torch.cuda.synchronize()
    return engine(first, last)


def profiled(events):
    """Percent of the time in which a kernel ran, and kernels a second; copies are no kernels."""
    kernels = sorted((e.time_range.start, e.time_range.end) for e in events
                     if e.device_type == torch.autograd.DeviceType.CUDA and not e.name.startswith(("Memcpy", "Memset")))
    begin, end = kernels[0][0] + LEFT_OUT_US[0], kernels[-1][1] - LEFT_OUT_US[1]
    busy, until, count = 0.0, begin, 0
    for a, b in kernels:
        a, b = max(a, begin), min(b, end)
        if b > until:
            busy += b - max(a, until)
            until = b
            count += 1
    return 100 * busy / (end - begin), 1e6 * count / (end - begin)


def main():
    step = {"decode": decode, "mlp": mlp, "train": train, "small": small}[sys.argv[1]]()
    seconds = float(sys.argv[2])
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(int(sys.argv[3]))
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    plain = run(step, seconds, handle)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        gpm = run(step, seconds, handle)
    percent, per_second = profiled(profiler.events())
    print(f"kernels a second {per_second:.0f}, profiler {percent:.2f}, GPM {gpm:.2f}, without the profiler {plain:.2f},",
          f"more for each kernel {(gpm - percent) * 1e4 / per_second:.1f} us")


if __name__ == "__main__":
    main()
