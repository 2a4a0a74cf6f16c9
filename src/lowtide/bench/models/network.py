"""`Network`: one training step of a known size, on `meta` or for real."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lowtide.models.build import build

Loss = Callable[[Any], Tensor]
Inputs = tuple[Any, ...]


@dataclass(frozen=True)
class Network:
    """What to call, and with what.

    Attributes:
        device: of the model and its inputs. `fake`: they are on `meta`, but the step must not be run there, since
            `meta` has other kernels than real devices (for attention and LSTMs).
        loss: output -> scalar. None: the sum of the output, or the output if it is a scalar.
    """

    name: str
    model: nn.Module
    args: Inputs
    device: str = "meta"
    loss: Loss | None = None


@dataclass(frozen=True)
class Recipe:
    """How to make a network of any batch size.

    Attributes:
        name: how tables name it.
        factory: makes the model.
        inputs: (batch, size) -> what the model is called with. `size` is the side of an image or the length of a text.
        size: the usual one.
        summary: where it is from, and what it is.
        loss: as in `Network`.
        meta_differs: its step runs other kernels on `meta`.
    """

    name: str
    factory: Callable[[], nn.Module]
    inputs: Callable[[int, int], Inputs]
    size: int
    summary: str
    loss: Loss | None = None
    meta_differs: bool = False

    def make(self, batch: int, size: int | None = None, device: str = "meta") -> Network:
        """The network in training mode with `batch` samples. On `meta` nothing of its size is allocated. Weights
        and inputs are random, from seed 0; the caller's random stream is left alone."""

        def both() -> tuple[nn.Module, Inputs]:
            return self.factory().train(), self.inputs(batch, size or self.size)

        model, args = build(both, device="meta" if device == "meta" else "cpu")
        if device not in ("meta", "cpu"):
            model, args = model.to(device), tuple(a.to(device) for a in args)
        return Network(self.name, model, args, "fake" if self.meta_differs and device == "meta" else device, self.loss)


def images(batch: int, size: int) -> Inputs:
    """(batch, 3, size, size), normal random numbers."""
    return (torch.randn(batch, 3, size, size),)
