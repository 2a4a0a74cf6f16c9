"""Gradients that autograd adds up in place, although a dispatch mode sees it do otherwise.

When several gradients of one tensor arrive, autograd's engine adds each to the sum so far: in place if it alone holds
that sum, else into a new tensor. Under any `TorchDispatchMode` it never works in place (the engine takes every tensor
for a subclass then), and who only watches counts one tensor too many: ResNets and transformers, with a skip in every
block, would seem to need more than they do. Here is the engine's own rule, for those who watch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes  # pyright: ignore


def adds_in_place(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether this call, seen by a dispatch mode before it runs, would be `args[0].add_(args[1])` if nobody watched.

    Ask with the arguments as `__torch_dispatch__` got them. That autograd's own formulas add two tensors is rare, and
    they hold them in variables while they do, as the engine does: they cannot be told apart.
    """
    if func is not torch.ops.aten.add.Tensor or kwargs or not _in_backward():
        return False
    if torch.is_grad_enabled() or len(args) != 2:
        return False
    total, new = args
    return (
        isinstance(total, Tensor)
        and isinstance(new, Tensor)
        and total.shape == new.shape
        and total.dtype == new.dtype
        and total.layout is torch.strided
        and _is_dense(total)
        and _holders(total) == _SOLE
    )


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1  # pyright: ignore[reportPrivateUsage]


def _is_dense(t: Tensor) -> bool:
    """Every byte of its stretch of memory belongs to one element, in any order of dimensions."""
    expected = 1
    for stride, size in sorted((st, n) for st, n in zip(t.stride(), t.shape, strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _holders(t: Tensor) -> tuple[int, int]:
    """References to the tensor and to its storage, those of this call and of Python's wrappers among them."""
    storage = t.untyped_storage()
    return t._use_count(), torch._C._storage_Use_Count(storage._cdata)  # pyright: ignore


def _holders_of_a_sum() -> tuple[int, int]:
    """What `_holders` says of a sum that the engine alone holds. It depends on how torch wraps tensors: look."""
    found: list[tuple[int, int]] = []

    class Look(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.add.Tensor and _in_backward():
                found.append(_holders(args[0]))
            return func(*args, **(kwargs or {}))

    with _disable_current_modes(), torch.enable_grad():
        x = torch.ones(2, device="cpu", requires_grad=True)
        y = x * 1.0
        loss = y.sin().sum() + y.cos().sum()
        with Look():
            torch.autograd.backward(loss, inputs=[x])
    return found[0]


# Looked up when this module is imported, not in the middle of somebody's backward.
_SOLE = _holders_of_a_sum()
