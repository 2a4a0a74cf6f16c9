"""Source: tensorflow/tensor2tensor#581 (2018-02-13: out of memory after 3 hours), icefall#521 (2022-08-10), OpenNMT-
  tf#296 (2019-01-03), qlora-pipe#36 (2024-11-28), ultralytics#4679 (2023-08-31: dies in epoch 2), s1#48
  (2025-02-11).
Fault: memory grows with T^2; a plan (or a batch size) measured on an average batch does not hold for the longest
  one, and the failure comes late.
Expected: plan for the worst declared shape, or hold a small set of plans keyed by shape; report the largest T that
  fits. `variants()` gives the same model at growing lengths."""

import torch
from torch import nn


class Attn(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + self.o((q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1) @ v)


class Net(nn.Module):
    def __init__(self, d=16, depth=4):
        super().__init__()
        self.blocks = nn.ModuleList(Attn(d) for _ in range(depth))

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x


def variants():
    return [(torch.randn(2, t, 16),) for t in (16, 64, 256)]


def make():
    return Net(), variants()[1], lambda y: y.square().mean()
