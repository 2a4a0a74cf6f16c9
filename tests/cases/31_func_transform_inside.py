"""Source: pytorch/pytorch#122729 (2024-03-26), #141845 (2024-12-02), #146036 (2025-01-30), #165880 (2025-10-20),
  MeanFlow#4 (2025-05-24).
Fault: the block uses torch.func (vmap of a Jacobian: flow divergence, test-time learning); saved-tensor hooks are
  not allowed under grad / vjp / jacrev, so hook-based checkpointing raises -- or per-sample gradients over a
  checkpointed model do.
Expected: regions containing func transforms are found in planning and handled as a whole from outside where that
  works, otherwise skipped with the reason; no crash at step 1."""

import torch
from torch import nn
from torch.func import jacrev, vmap


class Flow(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, 32), nn.Tanh(), nn.Linear(32, d))

    def forward(self, x):
        div = vmap(jacrev(self.net))(x).diagonal(dim1=1, dim2=2).sum(-1)
        return x + 0.1 * self.net(x), div


class Net(nn.Module):
    def __init__(self, d=6, steps=4):
        super().__init__()
        self.steps = nn.ModuleList(Flow(d) for _ in range(steps))

    def forward(self, x):
        logdet = 0
        for s in self.steps:
            x, div = s(x)
            logdet = logdet + div
        return x, logdet


def make():
    return Net(), (torch.randn(16, 6),), lambda o: o[0].square().mean() - 0.1 * o[1].mean()
