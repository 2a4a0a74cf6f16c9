"""Source: pytorch/pytorch#178568 (2026-03-27), #124725 (2024-04-24), #85088 (2022-09-15), #121212 (2024-03-05: RNG
  device lookup missed list inputs).
Fault: blocks exchange dicts / dataclasses / NamedTuples; reentrant checkpoint drops autograd for nested tensors or
  returns a plain tuple; inputs mutated by dict.update survive to the recompute.
Expected: any pytree in, the same pytree type out, all tensor leaves in autograd, caller's dict untouched."""

from typing import NamedTuple

import torch
from torch import nn


class State(NamedTuple):
    h: torch.Tensor
    extra: dict


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.f, self.g = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, s):
        h = torch.tanh(self.f(s.h)) + s.extra["ctx"]
        return State(h, {"ctx": self.g(s.extra["ctx"]), "step": s.extra["step"] + 1, "mask": None})


class Net(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))

    def forward(self, s):
        for b in self.blocks:
            s = b(s)
        return s


def make():
    s = State(torch.randn(8, 24), {"ctx": torch.randn(8, 24, requires_grad=True), "step": 0, "mask": None})
    return Net(), (s,), lambda o: o.h.square().mean() + o.extra["ctx"].sum() * 0.1 + o.extra["step"]
