"""The scalar that backward starts from, for any kind of model output."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from lowtide.errors import InputError


def _float_tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        if output.is_floating_point() or output.is_complex():
            yield output
    elif isinstance(output, Mapping):
        for v in output.values():  # pyright: ignore[reportUnknownVariableType]
            yield from _float_tensors(v)
    elif isinstance(output, (list, tuple)):
        for v in output:  # pyright: ignore[reportUnknownVariableType]
            yield from _float_tensors(v)
    elif dataclasses.is_dataclass(output):
        for f in dataclasses.fields(output):
            yield from _float_tensors(getattr(output, f.name))


def scalar_loss(output: Any, loss: Callable[[Any], Tensor] | None = None) -> Tensor:
    """`loss(output)` if a loss is given; else the output itself if it is a scalar, its `.loss` if it has one, or the
    sum of all its floating point tensors (in dicts, tuples, dataclasses, nested).

    Raises:
        InputError: if that is no scalar tensor, or there is nothing to sum.
    """
    if loss is not None:
        scalar = loss(output)
        if not isinstance(scalar, Tensor) or scalar.numel() != 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            shape = tuple(scalar.shape) if isinstance(scalar, Tensor) else type(scalar).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(
                f"the loss must be a tensor with one element, not {shape}: reduce it with .sum() or .mean()"
            )
        return scalar
    if isinstance(output, Tensor) and output.numel() == 1:
        return output
    found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(found, Tensor):
        return found if found.numel() == 1 else found.sum()
    total: Tensor | None = None
    for t in _float_tensors(output):
        part = t.sum() if not t.is_complex() else t.abs().sum()
        total = part if total is None else total + part
    if total is None:
        raise InputError(f"the model's output ({type(output).__name__}) holds no floating point tensor: pass loss=")
    return total
