"""Tensors that a loss closes over stand before the step, and making fake ones of them is no part of it."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lowtide
from lowtide.acting.loss import scalar_loss
from lowtide.acting.meter import StorageMeter
from lowtide.planning.step import Category


def segmentation() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 5, 1))
    return net, torch.randn(2, 3, 32, 32), torch.randint(0, 5, (2, 32, 32))


@pytest.mark.parametrize("closed_over", ["target", "weights"])
def test_a_target_is_an_input_and_makes_no_ops(closed_over: str) -> None:
    net, x, target = segmentation()
    weight = torch.rand(2, 1, 32, 32)

    def loss(y: Tensor) -> Tensor:
        return F.cross_entropy(y, target) if closed_over == "target" else (y * weight).square().mean()

    step = lowtide.trace(net, (x,), loss=loss)
    held = target if closed_over == "target" else weight
    sizes = [s.nbytes for s in step.storages if s.category is Category.INPUT and s.birth < 0]
    assert held.untyped_storage().nbytes() in sizes
    assert not any(op.name.startswith(("aten.set_", "aten.empty")) for op in step.ops)
    gc.disable()
    try:
        with StorageMeter() as meter:
            scalar_loss(net(x), loss).backward()
    finally:
        gc.enable()
    assert meter.peak_bytes == lowtide.simulate(step).peak_bytes
