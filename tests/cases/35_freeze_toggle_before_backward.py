"""Source: soumith/dcgan.torch#21 (2016-07-09: weights changed between forward and backward), pytorch/pytorch#148831
  class of ambient state, HF/PEFT freeze toggles (transformers#26334, 2023-09-22); checked by us on torch 2.14.1.
Fault: GAN-style loops switch requires_grad of the critic off (or step its optimizer) between forward and backward.
  Plain autograd already recorded what it needs; a recompute reads the NEW flags and weights: CheckpointError here.
  If weights were stepped instead, plain autograd raises a version error while checkpoint silently uses the new
  weights.
Expected: flags recorded per region and restored for the recompute; parameter versions compared at recompute ->
  error."""

import torch
from torch import nn


class GAN(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.gen = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, d))
        self.critic = nn.Sequential(nn.Linear(d, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, z):
        self.critic.requires_grad_(True)
        score = self.critic(self.gen(z))
        self.critic.requires_grad_(False)  # "generator turn starts"
        return score


def regions(m):
    return ["gen", "critic"]


def make():
    return GAN(), (torch.randn(32, 4),), lambda s: s.square().mean()
