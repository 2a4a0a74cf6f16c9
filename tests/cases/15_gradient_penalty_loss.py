"""Source: openai/guided-diffusion#144 (2024-04-16), MeanFlow#4 (2025-05-24), pytorch/pytorch#1483 (2017-05-05),
  pyqtorch#62 (2023-05-17).
Fault: the LOSS differentiates the model output w.r.t. its input with create_graph=True (gradient penalty,
  guidance); users had to monkey-patch checkpointing away.
Expected: works and matches; or the planner says up front that this loss needs double backward and which regions
  stay un-checkpointed."""

import torch
from torch import nn


class Critic(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 2 * d), nn.Softplus(), nn.Linear(2 * d, d)) for _ in range(3)
        )
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        h = x
        for b in self.blocks:
            h = h + b(h)
        return self.out(h), x


def loss_fn(o):
    score, x = o
    (g,) = torch.autograd.grad(score.sum(), x, create_graph=True)
    return score.mean() + 10 * (g.norm(dim=1) - 1).square().mean()


def make():
    return Critic(), (torch.randn(16, 24, requires_grad=True),), loss_fn
