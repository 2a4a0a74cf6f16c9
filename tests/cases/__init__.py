"""The cases as data: `CASES`, name -> `Case`. README.md tells what a case file defines."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from lowtide.acting.loss import scalar_loss
from lowtide.acting.sandbox import map_tensors, tensors_of


@dataclass(frozen=True)
class Example:
    """One training step of a case: what to call, with what, and the losses of its output."""

    model: nn.Module
    args: tuple[Any, ...]
    loss: Callable[[Any], Tensor]
    losses: Callable[[Any], list[Tensor]]
    state: Callable[[], list[Any]]


@dataclass(frozen=True)
class Case:
    """A case file."""

    name: str
    module: ModuleType

    @property
    def fault(self) -> str:
        """What goes wrong elsewhere, in one line of its docstring."""
        text = (self.module.__doc__ or "").partition("Fault:")[2].partition("Expected")[0]
        return " ".join(text.split())

    def make(self, seed: int = 0) -> Example:
        """A fresh example; the same for the same seed."""
        torch.manual_seed(seed)
        random.seed(seed)
        model, args, loss = self.module.make()
        return self._example(model, args, loss)

    def make_at_another_batch(self, seed: int = 0) -> Example:
        """The same model (same weights for the same seed) with a batch of another size."""
        e = self.make(seed)
        if hasattr(self.module, "another_batch"):
            args, loss = self.module.another_batch(e.args)
            return self._example(e.model, args, loss)
        batch = tensors_of(e.args)[0].shape[0]
        return self._example(e.model, map_tensors(e.args, lambda t: _doubled(t, batch)), e.loss)

    def regions(self, model: nn.Module) -> list[str]:
        """What a person would wrap in `torch.utils.checkpoint`: the case's choice, else the blocks."""
        if hasattr(self.module, "regions"):
            return self.module.regions(model)
        for name in ("blocks", "stages", "steps"):
            if hasattr(model, name):
                return [f"{name}.{i}" for i in range(len(getattr(model, name)))]
        return [name for name, _ in model.named_children()]

    def _example(self, model: nn.Module, args: tuple[Any, ...], loss: Callable[[Any], Tensor]) -> Example:
        several = getattr(self.module, "losses", None)
        state = getattr(self.module, "state", None)
        return Example(
            model,
            args,
            loss,
            several if several is not None else lambda out: [scalar_loss(out, loss)],
            (lambda: state(model)) if state is not None else list,
        )


def _doubled(t: Tensor, batch: int) -> Tensor:
    if t.dim() == 0 or t.shape[0] != batch:
        return t
    twice = torch.cat([t.detach(), t.detach().flip(0)])
    return twice.requires_grad_(t.requires_grad)


CASES: dict[str, Case] = {
    p.stem: Case(p.stem, importlib.import_module(f"tests.cases.{p.stem}"))
    for p in sorted(Path(__file__).parent.glob("[0-9]*.py"))
}
