"""Save everything a training step may change, and put it back: so that two runs can start from the same state and the
user's model is left as it was found."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, UntypedStorage

from lowtide.acting.sandbox import _Snapshot  # pyright: ignore[reportPrivateUsage]


class State(_Snapshot):
    """What modules, tensors, optimizers, generators, containers and plain objects hold, contents included.

    Contents are copied by storage, once each, so that views, tied parameters and expanded tensors come back as they
    were. It costs as much memory as the model's parameters, buffers, gradients and inputs.
    """

    def __init__(self, *roots: Any) -> None:
        super().__init__()
        self._contents: dict[int, tuple[UntypedStorage, UntypedStorage]] = {}
        for root in roots:
            self.take(root)

    def take(self, obj: Any, depth: int = 0) -> None:
        if isinstance(obj, Tensor):
            self._tensor(obj)
        elif isinstance(obj, torch.Generator):
            position = obj.get_state()
            self._once(obj, lambda: obj.set_state(position))
        elif isinstance(obj, random.Random):
            python = obj.getstate()
            self._once(obj, lambda: obj.setstate(python))
        elif isinstance(obj, torch.optim.Optimizer):
            for held in (obj.state, obj.param_groups):
                super().take(held, depth)
        elif not self._numpy(obj):
            super().take(obj, depth)

    def restore(self) -> None:
        """Put everything back. May be called again and again."""
        super().restore()
        with torch.no_grad():
            for live, saved in self._contents.values():
                if live.nbytes() != saved.nbytes():
                    live.resize_(saved.nbytes())
                live.copy_(saved)

    def _once(self, obj: Any, undo: Any) -> None:
        if id(obj) not in self._seen:
            self._seen.add(id(obj))
            self.keep_alive.append(obj)
            self._undo.append(undo)

    def _tensor(self, t: Tensor) -> None:
        if id(t) in self._seen:
            return
        try:
            storage = t.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse tensors and the like have none
            alias, content = t.detach(), t.detach().clone()
            self._once(t, lambda: alias.copy_(content))
            return
        if storage.device.type != "meta" and storage.data_ptr() not in self._contents:
            self._contents[storage.data_ptr()] = (storage, storage.clone())
        alias, wants = t.detach(), t.requires_grad
        grad = t.grad if t.is_leaf else None

        def undo() -> None:
            if t.data_ptr() != alias.data_ptr() or t.shape != alias.shape or t.stride() != alias.stride():
                t.data = alias
            if t.is_leaf:
                if t.requires_grad != wants:
                    t.requires_grad_(wants)
                if t.grad is not grad:
                    t.grad = grad

        self._once(t, undo)
        if grad is not None:
            self._tensor(grad)

    def _numpy(self, obj: Any) -> bool:
        """Take an array or generator of NumPy, if it is one."""
        if isinstance(obj, np.ndarray):
            content: NDArray[Any] = obj.copy()  # pyright: ignore[reportUnknownVariableType]
            self._once(obj, lambda: np.copyto(obj, content))  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(obj, np.random.Generator):
            position = obj.bit_generator.state
            self._once(obj, lambda: setattr(obj.bit_generator, "state", position))
        elif isinstance(obj, np.random.RandomState):
            legacy = obj.get_state()
            self._once(obj, lambda: obj.set_state(legacy))
        else:
            return False
        return True


def seed_everything(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
