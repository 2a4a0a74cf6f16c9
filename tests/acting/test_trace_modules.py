from __future__ import annotations

import torch
from torch import nn

import lowtide
from lowtide.planning.step import Phase


def test_an_op_of_backward_belongs_to_the_module_whose_forward_it_differentiates() -> None:
    """Ops without a node of their own, such as a batch norm's counter, come after a convolution's and not into it."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Linear(6, 5))
    step = lowtide.trace(model, (torch.randn(2, 3, 8, 8),))
    found = {op.name.split(".")[1]: op.module for op in step.ops if op.phase is Phase.BACKWARD}
    assert found["convolution_backward"] == "0"
    assert found["native_batch_norm_backward"] == "1"
    assert found["threshold_backward"] == "2"
    assert found["mm"] == "3"
