# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Programs in PyTorch and transformers that launch many short kernels: a step, and what waits until the GPU has done all.
Weights are random, of small configurations: nothing is fetched."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
from torch import nn  # noqa: E402

import nets  # noqa: E402: beside this file


def waited(step):
    return step, torch.cuda.synchronize


def small_kernels():
    return waited(nets.small_kernels())


def foreach(layers=32, width=256, batch=64):
    """What the optimiser does for all parameters at once, by kernels that come with lists of them."""
    net = nn.Sequential(*[layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))]).cuda()
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-4, foreach=True)
    x = torch.randn(batch, width, device="cuda")

    def step():
        optimiser.zero_grad(set_to_none=True)
        net(x).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, foreach=True)
        optimiser.step()

    return waited(step)


def half_layers(layers=48, width=512):
    """A result for the host after each step."""
    net = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)]).cuda().half()
    x = torch.randn(8, width, device="cuda", dtype=torch.float16)

    @torch.no_grad()
    def step():
        return net(x).argmax(-1).tolist()

    return waited(step)


def decode():
    return waited(nets.decode(layers=8))


def finetune(layers=6, batch=16, length=128, batches=8):
    """BERT with AdamW, by batches that come from the host."""
    from transformers import BertConfig, BertForSequenceClassification

    net = BertForSequenceClassification(BertConfig(num_hidden_layers=layers, num_labels=2)).cuda().train()
    optimiser = torch.optim.AdamW(net.parameters(), lr=2e-5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda at: 1 / (1 + at))
    words = [torch.randint(0, 30000, (batch, length)).pin_memory() for _ in range(batches)]
    labels = [torch.randint(0, 2, (batch,)).pin_memory() for _ in range(batches)]
    at = 0

    def step():
        nonlocal at
        at += 1
        ids, label = (of[at % batches].to("cuda", non_blocking=True) for of in (words, labels))
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = net(input_ids=ids, attention_mask=torch.ones_like(ids), labels=label).loss
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()

    return waited(step)


def generate(layers=6, batch=8, length=64, tokens=8):
    """GPT-2, which is asked for some tokens one after another."""
    from transformers import GPT2Config, GPT2LMHeadModel

    net = GPT2LMHeadModel(GPT2Config(n_layer=layers)).cuda().to(torch.bfloat16).eval()
    net.generation_config.eos_token_id = None
    ids = torch.randint(0, 50000, (batch, length), device="cuda")
    mask = torch.ones_like(ids)

    def step():
        return net.generate(ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False, pad_token_id=0)

    return waited(step)


makers = {"finetune": finetune, "generate": generate, "decode": decode, "half_layers": half_layers, "small_kernels": small_kernels,
          "foreach": foreach}
