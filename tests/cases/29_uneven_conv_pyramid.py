"""Source: facebookresearch/SlowFast#421 (2021-05-27: first stages hold 4x the next), fms-fsdp#56 (2024-03-21: every-k
  too coarse), diffusers#10611 (2025-01-20), WeatherGenerator#1141 (2025-10-23), transformers#48200 (2026-08-21),
  mistral#58 (2021-04-19).
Fault: activation bytes fall 4x per stage while time per stage is about level; "every k-th block" spends recompute
  on blocks that free almost nothing.
Expected: to reach a given budget the planner picks the early stages (most bytes per second of recompute) and beats
  every uniform every-k choice at equal peak."""

import itertools

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, c=4):
        super().__init__()
        ch = [1, c, 2 * c, 4 * c, 8 * c, 16 * c]
        self.stages = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1, stride=1 if k == 0 else 2),
                nn.GroupNorm(2, o),
                nn.SiLU(),
                nn.Conv2d(o, o, 3, padding=1),
                nn.GroupNorm(2, o),
                nn.SiLU(),
            )
            for k, (i, o) in enumerate(itertools.pairwise(ch))
        )

    def forward(self, x):
        for s in self.stages:
            x = s(x)
        return x.mean((2, 3))


def make():
    return Net(), (torch.randn(2, 1, 64, 64),), lambda y: y.square().mean()
