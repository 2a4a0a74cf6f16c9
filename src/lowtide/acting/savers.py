"""Whose backward a saved tensor is for, where less than its content is enough for that op.

The hook on saved tensors is not told which node saves. But an op's node saves what it needs of the op's arguments
just before the op runs, with no other node made in between, and of its result just after, with no op in between: so it
is certain for ops that autograd was on for, whose first argument requires a gradient. Of all else that saves the same
tensors (functions of the user's own, ops that save their inputs) nothing is assumed: they get it whole.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload

_aten: Any = torch.ops.aten

# Ops whose node saves the result and looks at its sign alone: threshold_backward asks whether it is <= 0, and
# leaky_relu_backward whether it is > 0.
SIGNS: dict[OpOverload, str] = {
    _aten.relu.default: "nonpositive",
    _aten.relu_.default: "nonpositive",
    _aten.leaky_relu_.default: "positive",
}

# Max pools, and how many dimensions of the first argument their indices (second output) go over.
POOLS: dict[OpOverload, int] = {
    _aten.max_pool2d_with_indices.default: 2,
    _aten.adaptive_max_pool2d.default: 2,
    _aten.fractional_max_pool2d.default: 2,
    _aten.max_pool3d_with_indices.default: 3,
    _aten.adaptive_max_pool3d.default: 3,
}

# Ops whose node saves the first argument and looks at its shape alone.
SHAPES: frozenset[OpOverload] = frozenset(
    {
        *POOLS,
        _aten.avg_pool2d.default,
        _aten.avg_pool3d.default,
        _aten._adaptive_avg_pool2d.default,
        _aten._adaptive_avg_pool3d.default,
        _aten.reflection_pad1d.default,
        _aten.reflection_pad2d.default,
        _aten.reflection_pad3d.default,
        _aten.replication_pad1d.default,
        _aten.replication_pad2d.default,
        _aten.replication_pad3d.default,
    }
)

_sequence_number: Any = torch._C._autograd._get_sequence_nr


def plane(func: OpOverload, args: tuple[Any, ...]) -> int:
    """How many places the indices of a pool tell apart; 0 for other ops."""
    dims = POOLS.get(func)
    if dims is None or not isinstance(args[0], Tensor):
        return 0
    places = 1
    for n in args[0].shape[-dims:]:
        places *= n
    return places


T = TypeVar("T")


class Savers(Generic[T]):
    """Follows ops and saves of one thread. `T` is whatever stands for a save."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, T]] = []
        self._result: tuple[int, int, str] | None = None

    def waits(self, key: int, save: T) -> None:
        """A tensor on storage `key` is saved."""
        self._waiting.append((_sequence_number(), key, save))

    def before(self, func: OpOverload, args: tuple[Any, ...]) -> list[T]:
        """An op is about to run: those of the last saves that are for its node, and for the shape alone."""
        self._result = None
        if not self._waiting:
            return []
        waiting, self._waiting = self._waiting, []
        if func not in SHAPES or not _has_node(args):
            return []
        number, key = _sequence_number(), args[0].untyped_storage()._cdata
        return [save for n, k, save in waiting if n == number and k == key]

    def after(self, func: OpOverload, args: tuple[Any, ...], out: Any) -> None:
        """An op has run."""
        sign = SIGNS.get(func)
        if sign is not None and isinstance(out, Tensor) and _has_node(args):
            self._result = _sequence_number(), out.untyped_storage()._cdata, sign

    def sign(self, key: int) -> str:
        """Which sign is enough for the save of a tensor on storage `key` that is being packed; '' if it is not."""
        result, self._result = self._result, None
        if result is not None and result[:2] == (_sequence_number(), key):
            return result[2]
        return ""


def _has_node(args: tuple[Any, ...]) -> bool:
    return torch.is_grad_enabled() and isinstance(args[0], Tensor) and args[0].requires_grad
