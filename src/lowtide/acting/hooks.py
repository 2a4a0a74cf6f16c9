"""Saved-tensor hooks that step aside where PyTorch does not allow them.

`torch.func`'s grad, vjp, jacrev and hessian refuse to run while hooks are on the stack: they enter
`torch.autograd.graph.disable_saved_tensors_hooks`, which raises. Autograd of such a transform is a level of its own,
and what it saves dies with it, so that a plan has nothing to win there: our hooks leave the stack for that long, and
what is saved meanwhile is kept, as without a plan. Hooks of others stay where they are, and raise as ever.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import Tensor

_here = threading.local()  # .stack: the hooks of ours that are entered in this thread, the innermost last
_lock = threading.Lock()
_entered = 0
_original = torch.autograd.graph.disable_saved_tensors_hooks


def allowed() -> bool:
    """Whether a plan has a place here: not inside a transform of `torch.func`, where tensors are wrapped ones."""
    return torch._C._autograd._saved_tensors_hooks_is_enabled() and torch._C._functorch.maybe_current_level() is None


class SavedTensorHooks(torch.autograd.graph.saved_tensors_hooks):
    """A pair of hooks on the tensors that autograd saves in this thread, as PyTorch's own, but for `torch.func`."""

    def __init__(self, pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]) -> None:
        super().__init__(pack, unpack)

    def __enter__(self) -> None:
        super().__enter__()
        _stack().append(self)
        _count(+1)

    def __exit__(self, *args: object) -> None:
        _stack().pop()
        _count(-1)
        super().__exit__(*args)


def _stack() -> list[SavedTensorHooks]:
    try:
        return _here.stack
    except AttributeError:
        _here.stack = []
        return _here.stack


def _count(change: int) -> None:
    """While hooks of ours are entered anywhere, `disable_saved_tensors_hooks` is the one below."""
    global _entered
    with _lock:
        _entered += change
        torch.autograd.graph.disable_saved_tensors_hooks = _disable if _entered else _original


@contextlib.contextmanager
def _disable(error_message: str) -> Generator[None]:
    """`torch.autograd.graph.disable_saved_tensors_hooks`, with the hooks of ours on top of the stack taken off."""
    aside = _taken_off()
    try:
        with _original(error_message):
            yield
    finally:
        for hooks in reversed(aside):
            torch.autograd.graph.saved_tensors_hooks.__enter__(hooks)
            _stack().append(hooks)


def _taken_off() -> list[SavedTensorHooks]:
    """Take our hooks off the top of autograd's stack; the innermost comes first."""
    aside: list[SavedTensorHooks] = []
    ours = _stack()
    while ours:
        top = torch._C._autograd._top_saved_tensors_default_hooks(True)
        if top is None or top[0] != ours[-1].pack_hook:
            break
        hooks = ours.pop()
        torch.autograd.graph.saved_tensors_hooks.__exit__(hooks)
        aside.append(hooks)
    return aside
