"""Building a model where its parameters cost nothing: on `meta`, or, where that fails, with empty parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

T = TypeVar("T")

_RANDOM_FILLS = frozenset({"uniform_", "normal_", "trunc_normal_", "random_", "erfinv_", "exponential_", "log_normal_"})


class _SkipInit(TorchFunctionMode):
    """Leaves out random initialisation, so that large parameters stay untouched pages that take no memory."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _RANDOM_FILLS and args and isinstance(args[0], torch.Tensor):
            return args[0]
        return func(*args, **(kwargs or {}))


def build(factory: Callable[[], T], *, device: str, seed: int = 0) -> T:
    """What `factory` returns, made on `device` (`meta` or `cpu`) with the random stream of `seed`. The caller's
    own stream is left as it was.

    Some constructors read tensors (`torch.linspace(...).tolist()`), which `meta` tensors refuse: such a model is
    built on the CPU without random initialisation, and its tensors are then replaced by `meta` ones.
    """
    with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType]
        torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
        if device != "meta":
            return factory()
        try:
            with torch.device("meta"):
                return factory()
        except Exception as e:
            if "meta" not in str(e).lower():
                raise
        with _SkipInit():
            return _to_meta(factory())


def _to_meta(built: T) -> T:
    """`built`, a model or a structure with models and tensors in it, on `meta`. Not `Module.to('meta')`: that makes
    a parameter of its own for each module that shares one."""
    seen: dict[int, torch.Tensor] = {}

    def move(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in seen:
            empty = torch.empty_like(tensor, device="meta")
            seen[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
        return seen[id(tensor)]

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return move(leaf)
        if isinstance(leaf, nn.Module):
            for module in leaf.modules():
                tables: list[dict[str, Any]] = [vars(module)["_parameters"], vars(module)["_buffers"]]
                for table in tables:
                    table.update({key: move(tensor) for key, tensor in table.items() if tensor is not None})
        return leaf

    return pytree.tree_map(convert, built)
