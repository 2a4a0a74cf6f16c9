"""Source: pytorch/pytorch#96136 (2023-03-06); also YOLO-Master#262 (2026-09-06), fairscale#1035 (2022-07-20),
  Samudra#572 (2026-02-03).
Fault: recompute runs BatchNorm again in train mode, so running_mean/var and num_batches_tracked advance twice
  while outputs and gradients still match -- a grads-only check passes.
Expected of a planner: recompute must not update running statistics (exactly one update per step), or the BatchNorm
  output is kept; a verifier must compare buffers, not only loss and grads."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, c=16, depth=4):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(3 if i == 0 else c, c, 3, padding=1), nn.BatchNorm2d(c), nn.SiLU())
            for i in range(depth)
        )

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x


def make():
    return Net(), (torch.randn(4, 3, 24, 24),), lambda y: y.square().mean()
