"""Source: huggingface/transformers#42489 (2025-11-28), #23170 (2023-05), open-unlearning#178 (2026-03-05: most LoRA
  layers never trained), peft#1142 (2023-11-17: 2x slower than a full fine-tune), DeepSpeed#8148/#8130 (2026-07).
Fault: frozen weights, trainable low-rank adapters, integer inputs: reentrant checkpoint leaves adapters untrained
  or raises; frozen linear layers save less than trainable ones, so byte estimates made from trainable models are
  wrong.
Expected: all adapter grads present and equal; no grads for frozen weights; saved-bytes model knows that a frozen
  Linear keeps no input; blocks before the first adapter cost no recompute."""

import torch
from torch import nn


class LoRA(nn.Module):
    def __init__(self, d, r=2):
        super().__init__()
        self.base = nn.Linear(d, d).requires_grad_(False)
        self.a, self.b = nn.Linear(d, r, bias=False), nn.Linear(r, d, bias=False)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


class Net(nn.Module):
    def __init__(self, d=32, depth=5):
        super().__init__()
        self.emb = nn.Embedding(50, d).requires_grad_(False)
        self.frozen = nn.Sequential(nn.Linear(d, d), nn.GELU()).requires_grad_(False)
        self.blocks = nn.ModuleList(
            nn.Sequential(LoRA(d), nn.GELU(), LoRA(d), nn.LayerNorm(d).requires_grad_(False)) for _ in range(depth)
        )

    def forward(self, t):
        x = self.frozen(self.emb(t))
        for b in self.blocks:
            x = x + b(x)
        return x


def regions(m):
    return ["frozen"] + [f"blocks.{i}" for i in range(5)]


def make():
    return Net(), (torch.randint(0, 50, (4, 16)),), lambda y: y.square().mean()
