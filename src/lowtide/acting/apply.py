"""Three ways to run a model under a plan: `remat` around forward and loss, `apply` on a module, and `checkpoint`, which
plans by itself."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lowtide.acting import hooks
from lowtide.acting.own_plans import OwnPlans
from lowtide.acting.table import table_of
from lowtide.acting.tape import Region
from lowtide.acting.unwatched import unwatched_backward
from lowtide.errors import InputError
from lowtide.planning.plan import Plan


@contextlib.contextmanager
def remat(plan: Plan) -> Generator[None]:
    """Run forward and loss under `plan`; backward may come after the block or inside it.

    The plan must have been made for this step. Other batch sizes run under the same plan; if the ops differ, everything
    from the first difference on is kept and one warning says where. Outside training (`torch.no_grad`), and inside a
    transform of `torch.func`, nothing happens.

    Raises:
        InputError: if `plan` is not a `Plan`.
    """
    if not isinstance(plan, Plan):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            f"lowtide.remat takes a Plan, not {type(plan).__name__}: make one with lowtide.plan or lowtide.load"
        )
    with _under(plan, frozenset()):
        yield


@contextlib.contextmanager
def _under(plan: Plan, units: frozenset[str]) -> Generator[Region | None]:
    """`remat`, with what is known of a model's sharded units."""
    if not torch.is_grad_enabled() or not hooks.allowed():
        yield None
        return
    region = Region(table_of(plan, units))
    try:
        with unwatched_backward(), region.hooks(), region:
            yield region
    finally:
        region.close()


def _sharded_units(model: nn.Module) -> frozenset[str]:
    """Paths of the modules that `torch.distributed.fsdp.fully_shard` was called on."""
    if "torch.distributed.fsdp" not in sys.modules:  # this is asked at every forward
        return frozenset()
    return frozenset(
        name
        for name, m in model.named_modules()
        if any(c.__name__ == "FSDPModule" for c in type(m).__mro__)  # whose module is slow to import
    )


class Handle:
    """Undoes `apply` or `checkpoint`."""

    def __init__(self, model: nn.Module) -> None:
        self._model: nn.Module | None = model

    def remove(self) -> None:
        """Give the model its own forward back. A second call does nothing."""
        model, self._model = self._model, None
        if model is None or _RUNNER not in model.__dict__:
            return
        del model.__dict__[_RUNNER]
        if "forward" in model.__dict__ and hasattr(model.__dict__["forward"], "_lowtide_before"):
            model.__dict__["forward"] = model.__dict__["forward"]._lowtide_before
        else:
            model.__class__ = type(model).__mro__[1]


_RUNNER = "_lowtide"


@functools.cache
def _planned(cls: type[nn.Module]) -> type[nn.Module]:
    """A subclass whose forward runs under what the instance carries. A class and not a wrapped bound method, so that
    a deep copy of the model (an EMA, say) runs its own forward and not the original's."""

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__[_RUNNER](self, cls.forward.__get__(self), args, kwargs)

    def __reduce_ex__(self: nn.Module, protocol: Any) -> Any:
        return _unplanned, (cls, _RUNNER in self.__dict__), self.__dict__

    functools.update_wrapper(forward, cls.forward)
    return type(
        cls.__name__, (cls,), {"forward": forward, "__reduce_ex__": __reduce_ex__, "__module__": cls.__module__}
    )


def _unplanned(cls: type[nn.Module], planned: bool) -> nn.Module:
    made = _planned(cls) if planned else cls
    return made.__new__(made)


def _install(model: nn.Module, runner: Any) -> Handle:
    """Make `model.forward(...)` call `runner(model, forward, args, kwargs)`.

    Raises:
        InputError: if the model has a runner already, or is compiled to TorchScript.
    """
    if _RUNNER in model.__dict__:
        raise InputError(f"this {type(model).__name__} runs under a plan already: call remove() on its handle first")
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError("a TorchScript module cannot run under a plan: use the module it was made from")
    own = model.__dict__.get("forward")
    if own is None:
        model.__class__ = _planned(type(model))
    else:  # somebody else has wrapped this instance's forward: wrap it once more

        @functools.wraps(own)
        def forward(*args: Any, **kwargs: Any) -> Any:
            return model.__dict__[_RUNNER](model, own, args, kwargs)

        forward._lowtide_before = own  # pyright: ignore[reportFunctionMemberAccess]
        model.__dict__["forward"] = forward
    model.__dict__[_RUNNER] = runner
    return Handle(model)


@dataclass
class _Fixed:
    """Runs training forwards under one plan."""

    plan: Plan

    def __deepcopy__(self, memo: Any) -> _Fixed:
        return _Fixed(self.plan)

    def __call__(self, model: nn.Module, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not model.training:
            return forward(*args, **kwargs)
        with _under(self.plan, _sharded_units(model)):
            return forward(*args, **kwargs)


@dataclass
class _Planning:
    """Plans at the first training forward of each kind, and runs under that."""

    own: OwnPlans

    def __deepcopy__(self, memo: Any) -> _Planning:
        return _Planning(self.own.copy())

    def __call__(self, model: nn.Module, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.own.tracing or not (model.training and torch.is_grad_enabled() and hooks.allowed()):
            return forward(*args, **kwargs)
        plan = self.own.plan_for(model, args, kwargs)
        with _under(plan, _sharded_units(model)) as region:
            out = forward(*args, **kwargs)
        if region is not None and region.stream.parted:
            self.own.left(plan)
        return out


def apply(model: nn.Module, plan: Plan) -> Handle:
    """From now on `model(...)` runs under `plan` in training; the loss outside it is kept as usual.

    Returns:
        A handle whose `remove()` undoes it.

    Raises:
        InputError: if the arguments are not a module and a plan.
    """
    if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"lowtide.apply takes an nn.Module, not {type(model).__name__}")
    if not isinstance(plan, Plan):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            f"lowtide.apply takes a Plan, not {type(plan).__name__}: make one with lowtide.plan or lowtide.load"
        )

    return _install(model, _Fixed(plan))


def checkpoint(model: nn.Module, budget: Any = None, *, max_plans: int = 8) -> nn.Module:
    """Let the model plan for itself at its first training forward, and run under that plan.

    The plan covers the model's forward (its loss is not known). There is one for each kind of call: shapes and types of
    the inputs, which parameters are trained, which modules are in training; the `max_plans` last ones are kept. A plan
    is made anew when steps take another course than it, and when it no longer fits the budget, because there are
    gradients now or, on CUDA, an optimizer's state or anything else in memory. If nothing fits any more, the plan of
    least peak serves, with a warning. In eval mode or under `no_grad` the model runs as it is.

    Args:
        model: changed in place: its `forward` is wrapped. `lowtide.Handle(model).remove()` undoes it.
        budget: as for `lowtide.plan`: least added time within it; None for the least peak.

    Returns:
        The same model.

    Raises:
        InputError: if the arguments cannot be used; at the first forward, if nothing fits the budget.
    """
    if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"lowtide.checkpoint takes an nn.Module, not {type(model).__name__}")
    _install(model, _Planning(OwnPlans(budget, max_plans)))
    return model
