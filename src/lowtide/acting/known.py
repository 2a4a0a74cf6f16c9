"""Contents of small tensors that a step makes out of nothing: positions, ranges, masks.

A fake tensor has no content, so a model that looks at one (`if mask.all():`) cannot be traced, or takes another path
under tracing than it takes for real. But much of what models look at is made by the step itself from constants. Such
tensors are computed for real beside the fake ones, as long as they are small, and a look at them is answered.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map
from torch.utils.weak import WeakIdKeyDictionary

from lowtide.acting.ops import outputs_in, tensors_in

# Elements of a tensor whose content is followed: masks of a few thousand positions, but no activation.
LIMIT = 1 << 22
# The same for a tensor that is copied from the caller's: masks and lengths, not images.
_LEARNT = 1 << 16
_LOOKS = torch.ops.aten._local_scalar_dense.default


class KnownValues(TorchDispatchMode):
    """Enter it above the fake mode: it answers looks at fake tensors whose content follows from constants."""

    def __init__(self) -> None:
        super().__init__()
        self._real: Any = WeakIdKeyDictionary()

    def learn(self, fake: Tensor, real: Tensor) -> None:
        """The content of a tensor that was there before: an attention mask that the caller passed in."""
        if real.device.type != "meta" and real.numel() <= _LEARNT and real.layout is torch.strided:
            self._real[fake] = real.detach().to("cpu", copy=True)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _LOOKS and args[0] in self._real:
            with _disable_current_modes():
                return self._real[args[0]].item()
        inputs = [*tensors_in(args), *tensors_in(kwargs.values())]
        known = all(t in self._real or not isinstance(t, FakeTensor) for t in inputs)
        out = func(*args, **kwargs)
        outputs = [t for t in outputs_in(out) if t is not None] if known else []
        if outputs and self._follows(func, outputs):
            self._compute(func, args, kwargs, outputs)
        elif func._schema.is_mutable:
            for t in inputs:
                self._forget(t)
        return out

    def _follows(self, func: Any, outputs: list[Tensor]) -> bool:
        if torch.Tag.nondeterministic_seeded in func.tags or "empty" in func._schema.name:
            return False
        return all(t.numel() <= LIMIT and t.layout is torch.strided for t in outputs)

    def _compute(self, func: Any, args: Any, kwargs: Any, outputs: list[Tensor]) -> None:
        args, kwargs = tree_map(lambda a: self._real[a] if isinstance(a, FakeTensor) else a, (args, kwargs))
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        with _disable_current_modes(), torch.no_grad():
            real = func(*args, **kwargs)
        for t, r in zip(outputs, (t for t in outputs_in(real) if t is not None), strict=True):
            self._real[t] = r

    def _forget(self, t: Tensor) -> None:
        """`t` was written with content that is not known: so is every tensor that looks at the same memory."""
        if t in self._real:
            gone = self._real[t].untyped_storage()._cdata
            for other in [o for o, r in self._real.items() if r.untyped_storage()._cdata == gone]:
                del self._real[other]


@contextlib.contextmanager
def as_if_real() -> Generator[None]:
    """transformers builds other masks where it sees fake tensors than for real ones: let it see real ones."""
    module = sys.modules.get("transformers.utils.import_utils")
    found = getattr(module, "is_fake_tensor", None)
    if found is None:
        yield
        return
    module.is_fake_tensor = lambda _: False  # type: ignore
    try:
        yield
    finally:
        module.is_fake_tensor = found  # type: ignore
