"""Source: NVIDIA/Megatron-LM#7538 (2026-09-21: recompute ran outside fp8_autocast, silently in BF16),
  TransformerEngine#787 (2024-04-16), pytorch/pytorch#148831 (2025-03-09: FSDP2 loses autocast), #141896
  (2024-12-02), fairscale#1199 (2025-08-04: default dtype re-applied).
Fault: forward runs under an ambient context (a library's precision mode, a flag set by a context manager);
  backward runs after it was left, so the recompute computes something else. Equal shapes -> silent. torch.autocast
  itself is restored by torch.utils.checkpoint; other contexts are not.
Expected: verifier catches it by comparing grads; regions get a hook to re-enter recorded contexts."""

from contextlib import contextmanager

import torch
from torch import nn

LOW = [False]


@contextmanager
def low_precision():
    LOW[0] = True
    yield
    LOW[0] = False


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        return x + self.b(torch.tanh(self.a(x) * (0.25 if LOW[0] else 1.0)))


class Net(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))

    def forward(self, x):
        with low_precision(), torch.autocast("cpu", torch.bfloat16):
            for b in self.blocks:
                x = b(x)
        return x.float()


def make():
    return Net(), (torch.randn(16, 24, requires_grad=True),), lambda y: y.square().mean()
