"""Functions of a user's own, for tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class SavesAndViews(torch.autograd.Function):
    """Hands its input on as a view, and saves it: what it saves is saved by nobody else."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return g * ctx.saved_tensors[0]
