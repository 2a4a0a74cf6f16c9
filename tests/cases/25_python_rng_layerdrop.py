"""Source: cybertronai/gradient-checkpointing#35 (2018-11-12), enformer-pytorch#33 (2023-11-02), fairseq2#484
  (2024-04-27: LayerDrop breaks DDP/FSDP silently).
Fault: the branch is chosen by Python's `random` (numpy is the same); torch's RNG stash does not cover it, so the
  recompute may take the other branch: sometimes an error, sometimes (equal shapes) silent wrong gradients.
Expected: Python and numpy RNG state are replayed too, or a region reading them is refused by name; control flow
  taken in forward is the one recomputed; after the step both generators are where the plain run leaves them."""

import random

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        if random.random() < 0.5:
            return x + torch.tanh(self.a(x))
        return x - torch.tanh(self.b(x)) * random.random()


class Net(nn.Module):
    def __init__(self, d=16, depth=6):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(depth))

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x


def make():
    random.seed(0)
    return Net(), (torch.randn(8, 16),), lambda y: y.square().mean()


def state(m):
    return [torch.tensor(random.getstate()[1][:8])]
