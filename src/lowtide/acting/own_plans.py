"""The plans of a model that plans for itself: one for each kind of call, made anew when it no longer serves.

A plan no longer serves when the step takes another course than its trace (a flag of the model's own has changed), and
when it no longer fits its budget: gradients that are added up, an optimizer's state and whatever else takes memory
between steps count, and may come after the plan was made.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from lowtide.acting.available import available_bytes
from lowtide.acting.ops import held_in, storage_key
from lowtide.acting.sandbox import tensors_of
from lowtide.errors import InputError
from lowtide.planning.allowance import is_auto, less_margin
from lowtide.planning.compress import uncompressed
from lowtide.planning.plan import Plan
from lowtide.units import format_bytes, parse_bytes

_PATIENCE = 3  # so often the steps of one kind of call may leave their plan, and get another
_SPARE = 100  # a plan made anew leaves this part of its room free, not to be made anew at every step


@dataclass
class _Planned:
    """A plan, and what it was made for.

    Attributes:
        room_bytes: what there was for the step and what stands before it; None without a budget in bytes.
        grad_bytes: gradients that were there when it was made.
        left: how many plans for this kind of call were left by a step.
        stale: this one was.
    """

    plan: Plan
    room_bytes: int | None
    grad_bytes: int
    left: int = 0
    stale: bool = False


@dataclass
class OwnPlans:
    """The `max_plans` plans of one model that were used last.

    Attributes:
        budget: as for `lowtide.plan`.
        made: kind of call -> its plan, the one used last at the end.
        tracing: the model is being traced right now.
    """

    budget: Any
    max_plans: int
    made: dict[Any, _Planned] = field(default_factory=dict[Any, _Planned])
    tracing: bool = False

    def copy(self) -> OwnPlans:
        """The same plans for another model."""
        return OwnPlans(self.budget, self.max_plans, dict(self.made))

    def plan_for(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan:
        """The plan for this call, made now if there is none that serves. Where nothing fits the budget it is the one of
        least peak, with a warning; but at the first call that is an error.

        Raises:
            InputError, TraceError: if there can be no plan.
        """
        key = _kind_of(model, args, kwargs)
        found = self.made.get(key)
        room = self._room_bytes(model, args, kwargs, found)
        if found is None or found.stale or _outgrown(found, room):
            found = self._plan(found, room, model, args, kwargs)
        self.made.pop(key, None)
        self.made[key] = found  # last used, last to go
        while len(self.made) > self.max_plans:
            del self.made[next(iter(self.made))]
        return found.plan

    def left(self, plan: Plan) -> None:
        """A step took another course than `plan`."""
        for found in self.made.values():
            if found.plan is plan and found.left < _PATIENCE:
                found.left, found.stale = found.left + 1, True

    def _plan(
        self, old: _Planned | None, room: int | None, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Planned:
        from lowtide.acting.api import costed_step, plan

        self.tracing = True
        try:
            step = costed_step(model, args, kwargs, None, None, None, self.budget is not None, None)
        finally:
            self.tracing = False
        if old is not None and old.stale and step.digest == uncompressed(old.plan.step).digest:
            old.left, old.stale = _PATIENCE, False  # a trace does not show the difference: another would be in vain
            return old
        left = old.left if old is not None else 0
        grads = _gradient_bytes(model)
        if room is None:
            return _Planned(plan(step, budget=self.budget), None, grads, left)
        if old is not None:
            room -= room // _SPARE
        try:
            return _Planned(plan(step, budget=max(1, room)), room, grads, left)
        except InputError:
            if not self.made:
                raise
        least = plan(step)
        warnings.warn(
            f"budget={self.budget!r} leaves {format_bytes(room)} for this step, whose least peak is "
            f"{format_bytes(least.total_peak_bytes)}: it runs under the plan of least peak",
            stacklevel=2,
        )
        return _Planned(least, room, grads, left)

    def _room_bytes(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], found: _Planned | None
    ) -> int | None:
        """What the budget leaves for a step and what stands before it; None if it is no number of bytes, but nothing or
        a share of what the step itself takes."""
        if self.budget is None or (isinstance(self.budget, str) and "%" in self.budget):
            return None
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        if is_auto(self.budget):
            total = less_margin(available_bytes(device))
        else:
            total = parse_bytes(self.budget)
        standing = _standing_bytes(model, args, kwargs)
        in_use = torch.cuda.memory_allocated(device) if device.type == "cuda" else standing
        if found is None:
            return total - (in_use - standing)
        # Gradients that were there when the step was traced are made by it when they are not: they count either way.
        in_use += max(0, found.grad_bytes - _gradient_bytes(model))
        return total - max(0, in_use - found.plan.step.standing_bytes)


def _outgrown(found: _Planned, room: int | None) -> bool:
    """Whether there is less room than the plan was made for, and than it takes."""
    if found.room_bytes is None or room is None:
        return False
    return room < min(found.room_bytes, found.plan.total_peak_bytes)


def _kind_of(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """What decides whether a plan fits a call: shapes, dtypes, devices, who wants gradients, plain arguments, which
    parameters are trained, which modules are in training, autocast."""
    tensors = tuple((tuple(t.shape), t.dtype, t.device, t.requires_grad) for t in tensors_of((args, kwargs)))
    plain = tuple(
        (k, v)
        for k, v in [*enumerate(args), *sorted(kwargs.items())]
        if isinstance(v, (bool, int, float, str, type(None)))
    )
    trained = tuple(p.requires_grad for p in model.parameters())
    training = tuple(m.training for m in model.modules())
    cast = tuple(
        torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        for kind in sorted({t.device.type for t in tensors_of((args, kwargs))})
        if kind != "meta"
    )
    return tensors, plain, trained, training, cast


def _standing_bytes(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """What stands before the step, as far as the model and its inputs tell: parameters, buffers, inputs, gradients."""
    held = [*model.parameters(), *model.buffers(), *tensors_of((args, kwargs))]
    return _bytes_of([*held, *_gradients(held)])


def _gradient_bytes(model: nn.Module) -> int:
    return _bytes_of(_gradients([*model.parameters()]))


def _gradients(tensors: list[Tensor]) -> list[Tensor]:
    return [t.grad for t in tensors if t.is_leaf and t.grad is not None]


def _bytes_of(tensors: list[Tensor]) -> int:
    """Bytes of their storages, each once."""
    return sum({storage_key(t): t.untyped_storage().nbytes() for t in held_in(tensors)}.values())
