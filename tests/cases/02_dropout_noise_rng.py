"""Source: pytorch/pytorch#190758 (2026-07-22) memory-budget partitioner redraws RNG ops; allenai/OLMo-core#828
  (2026-08-14) preserve_rng_state=False moved the training loss 2.19 -> 2.49; pytorch#194478 (2026-08-23) same on
  MPS.
Fault: dropout / randn_like redrawn in recompute -> gradient of a different sample, no error.
Expected: every random op inside a recomputed region replays the forward draw; RNG stream after the step equals the
  un-checkpointed run's; never trade an RNG op into recompute without its state. Skip stashing only if no RNG op."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        h = F.dropout(F.gelu(self.a(x)), 0.3, self.training)
        return x + self.b(h) * (1 + 0.1 * torch.randn_like(x))


class Net(nn.Module):
    def __init__(self, d=32, depth=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(depth))

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x


def make():
    return Net(), (torch.randn(16, 32),), lambda y: y.square().mean()
