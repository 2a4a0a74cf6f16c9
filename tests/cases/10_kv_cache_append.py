"""Source: huggingface/transformers#28056 (2023-12-15), pytorch/pytorch#155171 (2025-06-04: 171 -> 342 tokens),
  MemoryVLA#18 (2026-03-27), OpenTau#202 (2026-04-29), LongLive#16 (2025-10-16), Wan2.1#430 (2025-07: conv feature
  cache of a video VAE).
Fault: the block appends to a cache object during forward; the recompute appends again and sees twice the length.
Expected: detect that the region mutates a non-tensor argument; snapshot/restore it, or refuse the region with the
  name of the mutated object; cache contents after the step equal the plain run's."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, d, i):
        super().__init__()
        self.i, self.k, self.v, self.o = i, nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x, cache):
        old = cache.get(self.i)
        k, v = self.k(x), self.v(x)
        if old is not None:
            k, v = torch.cat([old[0], k], 1), torch.cat([old[1], v], 1)
        cache[self.i] = (k, v)
        return x + self.o((x @ k.transpose(1, 2)).softmax(-1) @ v)


class Net(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d, i) for i in range(3))

    def forward(self, x):
        cache = {}
        for chunk in x.chunk(2, 1):
            for b in self.blocks:
                chunk = b(chunk, cache)
        return chunk


def make():
    return Net(), (torch.randn(2, 12, 16),), lambda y: y.square().mean()
