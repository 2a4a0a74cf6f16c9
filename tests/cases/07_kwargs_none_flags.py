"""Source: pytorch/pytorch#79887 (2022-06-20), DeepSpeed#598 (2020-12), DeepSpeed#8455 (2026-09-08: stray None shifts
  the argument list), DeepSpeed#7038 (2025-02-15), ColossalAI#1761 (2022-10-26), pytorch#63394 (2021-08-17).
Fault: block is called with keyword tensors, None, ints and bools; wrappers that only forward positional tensors
  crash, drop, or re-order them on recompute.
Expected: the call signature is preserved exactly; tensors given by keyword keep their gradients."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.o = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x, *, mask=None, bias=None, scale=1, causal=False):
        a = self.q(x) @ x.transpose(-1, -2) / x.shape[-1] ** 0.5 * scale
        if bias is not None:
            a = a + bias
        if causal:
            a = a.masked_fill(torch.ones_like(a).triu(1).bool(), -1e4)
        if mask is not None:
            a = a * mask
        return x + self.o(a.softmax(-1) @ x), None


class Net(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))

    def forward(self, x, bias):
        for i, b in enumerate(self.blocks):
            x, _ = b(x, bias=bias, mask=None, scale=2, causal=i > 0)
        return x


def make():
    return Net(), (torch.randn(2, 12, 16), torch.randn(12, 12, requires_grad=True)), lambda y: y.square().mean()
