"""Source: huggingface/transformers#48081 (2026-08-19), #48475 (2026-09-02), SpecForge#337 (2025-11-28), timm#1595
  (2022-12-17).
Fault: the model returns every hidden state (deep supervision, distillation); the caller holds them, so dropping
  block inputs frees nothing, and plans that count them as freed are over-optimistic.
Expected: tensors reachable from the outputs are counted as kept for free: use them as region boundaries, recompute
  only the insides; the reported saving matches the measured one."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, d=64, depth=8):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.LayerNorm(d)) for _ in range(depth))

    def forward(self, x):
        hs = [x]
        for b in self.blocks:
            x = x + b(x)
            hs.append(x)
        return {"last": x, "hidden": tuple(hs)}


def make():
    return (
        Net(),
        (torch.randn(128, 64),),
        lambda o: o["last"].square().mean() + sum(h.mean() for h in o["hidden"][1::2]),
    )
