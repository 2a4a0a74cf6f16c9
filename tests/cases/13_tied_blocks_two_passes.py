"""Source: pytorch/pytorch#193193 (2026-08-12: same blocks traversed twice, compiled peak 2.3-3.5x eager), #81296
  (2022-07-12), fairscale#777 (2021-09), FocalNet#4 (2022-05-13: "marked ready twice").
Fault: one module is called at several sites with different inputs (with and without context); per-module plans or
  hooks keyed by module mix the sites up, and both passes' working sets can be alive together.
Expected: decisions are per call site; a tied weight's gradient is the sum over sites; peak counts one pass's
  working set at a time."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), nn.Linear(d, d)

    def forward(self, x, ctx=None):
        if ctx is not None:
            x = x + self.c(ctx)
        return x + self.b(torch.nn.functional.gelu(self.a(x)))


class Net(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(4))
        self.head = nn.Linear(d, d, bias=False)
        self.head.weight = self.blocks[0].c.weight  # tied

    def forward(self, x, ctx):
        u = v = x
        for b in self.blocks:
            u = b(u)
        for b in self.blocks:
            v = b(v, ctx)
        return self.head(u), self.head(v)


def make():
    return Net(), (torch.randn(64, 32), torch.randn(64, 32)), lambda o: (o[0] * o[1]).mean() + o[0].square().mean()
