"""Source: pytorch/torchtitan#1323 (2026-02-13: about 350 us fixed cost per region plus 30-50 us for RNG stashing),
  pytorch#7801 (2018-05-23), pytorch#135816 (2024-09-12: every region falls back to eager), diffusers#10611
  (2025-01-20).
Fault: hundreds of tiny regions: fixed per-region cost (hooks, RNG get/set, graph break) is larger than the
  recompute itself; a FLOP-only cost model picks them all.
Expected: the time model has a per-region constant measured on the machine; neighbours are merged into fewer,
  longer regions; predicted and measured step time agree."""

import torch
from torch import nn


class Tiny(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x):
        return x + torch.tanh(x * self.w + self.b) * 0.1


class Net(nn.Module):
    def __init__(self, d=32, depth=96):
        super().__init__()
        self.blocks = nn.ModuleList(Tiny(d) for _ in range(depth))

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x


def make():
    return Net(), (torch.randn(16, 32),), lambda y: y.square().mean()
