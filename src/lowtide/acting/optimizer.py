"""An optimizer for stand-in parameters: its state and its step, without the user's optimizer taking part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lowtide.acting.sandbox import tensors_of
from lowtide.errors import InputError


def _named() -> dict[str, type[torch.optim.Optimizer]]:
    return {
        name.lower(): cls
        for name, cls in vars(torch.optim).items()
        if isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer) and cls is not torch.optim.Optimizer
    }


def by_name(name: str) -> Callable[[list[nn.Parameter]], torch.optim.Optimizer]:
    """The `torch.optim` class called `name`, in any case, with its defaults.

    Raises:
        InputError: if there is none.
    """
    found = _named()
    if name.lower() not in found:
        raise InputError(f"unknown optimizer {name!r}: torch.optim has {', '.join(sorted(found))}")
    cls = found[name.lower()]
    return lambda parameters: cls(parameters, lr=1e-3) if cls is torch.optim.SGD else cls(parameters)  # pyright: ignore[reportCallIssue]


def describe(optimizer: Any) -> str:
    """A word for a step's meta data."""
    if optimizer is None:
        return ""
    if isinstance(optimizer, str):
        return optimizer.lower()
    return optimizer.__name__ if hasattr(optimizer, "__name__") else type(optimizer).__name__


@dataclass(frozen=True)
class Stepper:
    """An optimizer over stand-ins, its state already there as after a first step."""

    optimizer: torch.optim.Optimizer

    def state_tensors(self) -> list[Tensor]:
        return tensors_of(dict(self.optimizer.state))

    def step(self) -> None:
        with torch.no_grad():
            self.optimizer.step()


def _rebuilt(optimizer: torch.optim.Optimizer, table: dict[int, Tensor]) -> torch.optim.Optimizer:
    """The same class with the same settings over the stand-ins. `optimizer` itself is not touched."""
    groups: list[dict[str, Any]] = []
    for group in optimizer.param_groups:
        missing = [p for p in group["params"] if id(p) not in table]
        if missing:
            raise InputError(
                f"the optimizer holds a parameter of shape {tuple(missing[0].shape)} that is not the model's: "
                "pass one made over model.parameters()"
            )
        rest = {k: v for k, v in group.items() if k not in {"params", "param_names"}}
        groups.append({"params": [table[id(p)] for p in group["params"]], **rest})
    new = object.__new__(type(optimizer))
    new.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k not in {"state", "param_groups"}})
    new.__dict__["state"] = type(optimizer.state)(dict)
    new.__dict__["param_groups"] = groups
    return new


def prepare(optimizer: Any, model: nn.Module, table: dict[int, Tensor]) -> Stepper:
    """An optimizer over the model's present (stand-in) parameters, stepped once so that its state exists.

    Args:
        optimizer: an instance over the original parameters, a callable parameters -> optimizer, or a name.
        table: id(original) -> stand-in.

    Raises:
        InputError: if it cannot be made or stepped.
    """
    trainable = [p for p in model.parameters() if p.requires_grad]
    if isinstance(optimizer, torch.optim.Optimizer):
        made = _rebuilt(optimizer, table)
    else:
        make = by_name(optimizer) if isinstance(optimizer, str) else optimizer
        try:
            made = make(trainable)
        except TypeError as e:
            raise InputError(f"optimizer {describe(optimizer)!r} cannot be made from a list of parameters: {e}") from e
    held = [p.grad for p in trainable]
    for p in trainable:
        p.grad = torch.zeros_like(p)
    stepper = Stepper(made)
    try:
        stepper.step()
    except Exception as e:
        raise InputError(f"optimizer {describe(optimizer)!r} cannot be stepped on its own: {e}") from e
    for p, g in zip(trainable, held, strict=True):
        p.grad = g
    return stepper
