"""Source: pytorch/pytorch#36383 (2020-04-10), #26546 (2019-09-20), comment on #7617 (2020-01-29).
Fault: a region whose last op is in-place on a view (InstanceNorm -> ReLU(inplace), x[:].relu_()) loses its
  gradient under use_reentrant=True: x.grad stays None, no error.
Expected: gradients identical to the plain run; a boundary is never put straight after an in-place op on a view
  unless verified."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv1d(c, c, 3, padding=1), nn.InstanceNorm1d(c), nn.ReLU(inplace=True)

    def forward(self, x):
        return self.act(self.norm(self.conv(x))[:])


class Net(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.blocks = nn.ModuleList(Block(c) for _ in range(3))

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x


def make():
    return Net(), (torch.randn(4, 8, 32, requires_grad=True),), lambda y: (y - 0.3).square().mean()
