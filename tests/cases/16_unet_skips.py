"""Source: Project-MONAI/MONAI#8554 (2025-11-04), diffusers#4377 (2023-07-31: mid block forgotten), physicsnemo#465,
  Radiology-and-AI#25 (2020-12-12: "not extremely effective for U-net"), pytorch/pytorch#194696 (2026-08-25:
  checkpoint_sequential is no help).
Fault: skip tensors live from encoder to decoder, so freeing inside a level saves little unless the skip itself is
  the kept tensor; nested (recursive) wrappers recompute the inner levels several times.
Expected: a graph (not chain) plan; skips are counted as alive once; the full-resolution levels are chosen first;
  each level is recomputed at most once unless the plan says otherwise."""

import torch
import torch.nn.functional as F
from torch import nn


def conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1),
        nn.GroupNorm(4, o),
        nn.SiLU(),
        nn.Conv2d(o, o, 3, padding=1),
        nn.GroupNorm(4, o),
        nn.SiLU(),
    )


class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.down = nn.ModuleList([conv(1, c), conv(c, 2 * c), conv(2 * c, 4 * c)])
        self.mid, self.up = conv(4 * c, 8 * c), nn.ModuleList([conv(12 * c, 4 * c), conv(6 * c, 2 * c), conv(3 * c, c)])

    def forward(self, x):
        skips = []
        for d in self.down:
            x = d(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.mid(x)
        for u in self.up:
            x = u(torch.cat([F.interpolate(x, scale_factor=2.0), skips.pop()], 1))
        return x


def regions(m):
    return [f"down.{i}" for i in range(3)] + ["mid"] + [f"up.{i}" for i in range(3)]


def make():
    return UNet(), (torch.randn(2, 1, 48, 48),), lambda y: y.square().mean()
