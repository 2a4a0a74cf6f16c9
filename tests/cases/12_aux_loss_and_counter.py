"""Source: NVIDIA-NeMo/Automodel#3247 (2026-07-27: expert load counted twice), torchtitan#4772 (2026-09-17: aux loss
  made incompatible with AC), chainer-compiler#98 (2019-03-27).
Fault: the block appends an auxiliary loss to a list and adds to a plain (non-buffer) counter; recompute repeats
  both. First call differs from later ones (None -> tensor), so the op sequence changes too.
Expected: Python-side effects of a region happen once; the auxiliary loss keeps its gradient; attributes and
  buffers after the step equal the plain run's."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, d, sink):
        super().__init__()
        self.f, self.gate, self.sink, self.load = nn.Linear(d, d), nn.Linear(d, 4), sink, None

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        self.sink.append(p.mean(0).square().sum())
        n = p.detach().sum(0)
        self.load = n if self.load is None else self.load + n
        return x + torch.tanh(self.f(x)) * p[:, :1]


class Net(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.sink = []
        self.blocks = nn.ModuleList(Block(d, self.sink) for _ in range(3))

    def forward(self, x):
        self.sink.clear()
        for b in self.blocks:
            x = b(x)
        return x, torch.stack(list(self.sink)).sum()


def make():
    return Net(), (torch.randn(32, 16),), lambda o: o[0].square().mean() + 0.1 * o[1]


def state(m):
    return [b.load for b in m.blocks] + [torch.tensor(len(m.sink))]
