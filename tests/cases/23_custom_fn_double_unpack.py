"""Source: stanford-futuredata/stk#7 (2024-04-04), OLMo#639 (2024-05-15), pytorch/pytorch#82156 (2022-07-25), #161186
  (2025-08-21), xformers#1126 (2024-10-11), pytorch/ao#3349 (2025-11-17).
Fault: custom autograd.Function reads ctx.saved_tensors twice (CheckpointError: already unpacked once) and hides a
  tensor on ctx (invisible to saved-tensor hooks, so its bytes are neither counted nor freed).
Expected: found at planning time with the Function's name; region left alone or boundary moved; hidden ctx tensors
  show up in measured, not only in hook-counted, bytes."""

import torch
from torch import nn


class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        ctx.hidden = x.tanh()
        return ctx.hidden @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors[0], ctx.saved_tensors[1]  # two unpacks
        return (g @ w.t()) * (1 - x.tanh() ** 2), ctx.hidden.t() @ g


class Block(nn.Linear):
    def forward(self, x):
        return torch.sin(Fn.apply(x, self.weight)) + self.bias


class Net(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d, d) for _ in range(3))

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x


def make():
    return Net(), (torch.randn(16, 24, requires_grad=True),), lambda y: y.square().mean()
