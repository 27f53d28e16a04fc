# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
"""Networks that are trained or asked, as steps to be repeated."""

import torch
from torch import nn


class Block(nn.Module):
    """ResNet's basic block, so that torchvision need not be there."""

    def __init__(self, inside, outside, stride):
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outside)
        same = stride == 1 and inside == outside
        self.around = nn.Identity() if same else nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        y = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(y)) + self.around(x))


def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for outside, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inside, outside, stride), Block(outside, outside, 1)]
        inside = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def training(device="cuda", batch=128):
    net = resnet18().to(device).to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device=device)

    def step():
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimiser.step()

    return step


def small_kernels(device="cuda"):
    net = nn.Sequential(*[layer for _ in range(16) for layer in (nn.Linear(256, 256), nn.ReLU())]).to(device)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.001, foreach=False)
    x = torch.randn(64, 256, device=device)

    def step():
        optimiser.zero_grad(set_to_none=True)
        net(x).square().mean().backward()
        optimiser.step()

    return step


class Layer(nn.Module):
    """Of a transformer that is asked for one more token of each sequence; what came before is kept."""

    def __init__(self, width, heads, batch, length):
        super().__init__()
        self.heads, self.length = heads, length
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.asked, self.back = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.wide, self.narrow = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(batch, heads, length, width // heads))

    def forward(self, x, at):
        batch, width = x.shape
        q, k, v = self.asked(self.first_norm(x)).view(batch, 3, self.heads, 1, width // self.heads).unbind(1)
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        y = nn.functional.scaled_dot_product_attention(q, self.keys, self.values)
        x = x + self.back(y.reshape(batch, width))
        return x + self.narrow(nn.functional.gelu(self.wide(self.second_norm(x))))


def decode(device="cuda", layers=24, width=2048, heads=16, batch=16, length=1024, words=32000):
    """Tokens for all sequences; the position stays, so that every step is alike."""
    body = nn.ModuleList([Layer(width, heads, batch, length) for _ in range(layers)]).to(device, torch.bfloat16)
    embedding = nn.Embedding(words, width).to(device, torch.bfloat16)
    token = torch.zeros(batch, dtype=torch.long, device=device)
    at = torch.tensor([length - 1], device=device)

    @torch.no_grad()
    def step():
        x = embedding(token)
        for layer in body:
            x = layer(x, at)
        token.copy_((x @ embedding.weight.T).argmax(-1))

    return step
