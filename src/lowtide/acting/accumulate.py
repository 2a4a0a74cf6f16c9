"""Gradients that autograd adds up in place, although a dispatch mode sees it do otherwise.

When several gradients of one tensor arrive, autograd's engine adds each to the sum so far: in place if it alone holds
that sum, else into a new tensor. Under any `TorchDispatchMode` it never works in place (the engine takes every tensor
for a subclass then), and who only watches counts one tensor too many: ResNets and transformers, with a skip in every
block, would seem to need more than they do. Here is the engine's own rule, for those who watch.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


def adds_in_place(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether this call, seen by a dispatch mode before it runs, would be `args[0].add_(args[1])` if nobody watched.

    Ask with the arguments as `__torch_dispatch__` got them. That autograd's own formulas add two tensors is rare, and
    they hold them in variables while they do, as the engine does: they cannot be told apart.
    """
    if func is not torch.ops.aten.add.Tensor or kwargs or torch._C._current_graph_task_id() == -1:
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
        and torch._prims_common.is_non_overlapping_and_dense_or_false(total)
        and _holders(total) == _holders_of_a_sum()
    )


def _holders(t: Tensor) -> tuple[int, int]:
    """References to the tensor and to its storage, those of this call and of Python's wrappers among them."""
    storage = t.untyped_storage()
    return t._use_count(), torch._C._storage_Use_Count(storage._cdata)  # pyright: ignore


@cache
def _holders_of_a_sum() -> tuple[int, int]:
    """What `_holders` says of a sum that the engine alone holds. It depends on how torch wraps tensors: look once."""
    found: list[tuple[int, int]] = []

    class Look(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.add.Tensor and torch._C._current_graph_task_id() != -1:
                found.append(_holders(args[0]))
            return func(*args, **(kwargs or {}))

    with torch.utils._python_dispatch._disable_current_modes(), torch.enable_grad():
        x = torch.ones(2, requires_grad=True)
        y = x * 1.0
        loss = y.sin().sum() + y.cos().sum()
        with Look():
            torch.autograd.backward(loss, inputs=[x])
    return found[0]
