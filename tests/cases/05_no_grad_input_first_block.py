"""Source: pytorch/pytorch#7617 (2018-05-16, open), open_clip#573 (2023-07-20), xtuner#2048 (2026-08-26: detached
  inputs, loss non-zero, all parameter grads None).
Fault: with use_reentrant=True a region none of whose inputs require grad produces no gradient for its parameters;
  training looks healthy.
Expected: parameters decide, not inputs; every trainable parameter that got a gradient in the plain run gets the
  same gradient in the planned run (None-ness compared too)."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.extra = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))  # fed a detached input

    def forward(self, x):
        h = self.stem(x)
        return h, self.extra(h.detach())


def regions(m):
    return ["extra"]  # the head fed by a detached input


def make():
    return Net(), (torch.randn(32, 32),), lambda o: o[0].square().mean() + o[1].square().mean()
