"""Source: pytorch/torchtitan#996 (2025-03-20: 49.6 -> 42.3 GiB from chunking the loss), trl#5575 (2026-04-21),
  Automodel#3907 (2026-09-16), LongVA#19 (2024-08-23).
Fault: logits + log-softmax + their gradient dominate the peak; checkpointing every block leaves the peak
  unchanged.
Expected: report that the peak sits in head+loss and that block checkpointing alone cannot go below it; the loss
  must be inside what is planned (loss_fn is part of the step); suggest / apply a chunked head."""

import torch
import torch.nn.functional as F
from torch import nn


class LM(nn.Module):
    def __init__(self, d=32, v=4000, depth=4):
        super().__init__()
        self.emb = nn.Embedding(v, d)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)) for _ in range(depth)
        )
        self.head = nn.Linear(d, v, bias=False)

    def forward(self, t):
        x = self.emb(t)
        for b in self.blocks:
            x = x + b(x)
        return self.head(x)


def make():
    t = torch.randint(0, 4000, (2, 128))
    return LM(), (t,), lambda z: F.cross_entropy(z.float().flatten(0, 1), t.flatten())


def another_batch(args):
    t = torch.cat([args[0], args[0].flip(0)])
    return (t,), lambda z: F.cross_entropy(z.float().flatten(0, 1), t.flatten())
