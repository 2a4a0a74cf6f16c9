"""Backward inside a planned region, run as if nobody watched.

Autograd's formulas, and its engine where it adds gradients up, look whether a dispatch mode is active, and if so work
out of place. The numbers are the same, but a gradient may get another layout, so that what sums over it does so in
another order: a bias differs in its last bit. So the modes of ours leave the stack while the engine runs, unless it
builds a graph (`create_graph`): then it works out of place in any case.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from typing import Any

from torch import autograd
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack, _pop_mode, _push_mode

_lock = threading.Lock()
_entered = 0
_ENTRY = "_engine_run_backward"  # what `backward` and `grad` look up when they are called
_original = getattr(autograd, _ENTRY)


class StepsAside(TorchDispatchMode):
    """A dispatch mode that can do without seeing a backward."""

    def aside(self) -> None:
        """The engine is about to run, and this mode will not see what it does."""

    def back(self) -> None:
        """The engine has run."""


@contextlib.contextmanager
def unwatched_backward() -> Generator[None]:
    """Inside, in any thread, the engine runs without modes that step aside. If there are others it sees a mode with
    or without a plan, and all stay."""
    _count(+1)
    try:
        yield
    finally:
        _count(-1)


def _count(change: int) -> None:
    global _entered
    with _lock:
        _entered += change
        setattr(autograd, _ENTRY, _run if _entered else _original)


def _run(t_outputs: Any, grads: Any, keep_graph: bool, create_graph: bool, *args: Any, **kwargs: Any) -> Any:
    modes = [] if create_graph else _get_current_dispatch_mode_stack()
    if not all(isinstance(m, StepsAside) for m in modes):
        modes = []
    for mode in modes:
        _pop_mode()
        mode.aside()
    try:
        return _original(t_outputs, grads, keep_graph, create_graph, *args, **kwargs)
    finally:
        for mode in modes:
            mode.back()
            _push_mode(mode)
