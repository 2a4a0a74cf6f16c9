"""The scratch that CPU kernels allocate while they run, which no shape tells.

oneDNN reorders what a convolution reads and writes into blocked copies, and the backward of batch norm works on a copy
of its output. A plain step hides it: its peak is elsewhere. At a peak that a plan has brought down it was 8 to 26 %
more (ResNets, VGG, DenseNet, U-Net, batches of 8 to 16). So each kind of call is made once for real, on zeros, and what
the allocator's record shows is taken. Together that is about the time of one step, and the memory of one op.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore
from torch.utils._pytree import tree_leaves, tree_map

from lowtide.acting import recurrent
from lowtide.acting.measure import record_blocks, running_bytes
from lowtide.planning.step import Step

# Ops seen to allocate scratch that counts, and which of their arguments have the batch first.
_BATCHED: dict[str, tuple[int, ...]] = {
    "aten::convolution": (0,),
    "aten::convolution_backward": (0, 1),
    "aten::native_batch_norm_backward": (0, 1),
    "aten::native_layer_norm": (0,),
    "aten::native_layer_norm_backward": (0, 1, 3, 4),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (0, 1, 2),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": (0, 1, 2, 3, 4, 5),
    "aten::_safe_softmax": (0,),
    "aten::max_pool2d_with_indices_backward": (0, 1, 7),
    "aten::roll": (0,),
    # The times are first here, the batch is second: scratch grows with either.
    recurrent.FORWARD: (0,),
    recurrent.BACKWARD: (0, 7, 10),
}

# Calls that read more than this are made on smaller batches, and the growth is carried on.
_LIMIT_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Shape:
    """A tensor without its content: sizes, strides in elements, type."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def with_batch(self, n: int) -> Shape:
        """The same order of dimensions in memory with another first size. Expanded dimensions stay so."""
        size = (n, *self.size[1:])
        stride = [0] * len(size)
        step = 1
        for d in sorted(range(len(size)), key=lambda d: (self.stride[d], -d)):
            if self.stride[d] != 0:
                stride[d] = step
                step *= size[d]
        return replace(self, size=size, stride=tuple(stride))

    @property
    def nbytes(self) -> int:
        return math.prod(self.size) * self.dtype.itemsize

    def make(self) -> Tensor:
        held = 1 + sum((n - 1) * st for n, st in zip(self.size, self.stride, strict=True))
        return torch.zeros(held, dtype=self.dtype, device="cpu").as_strided(self.size, self.stride)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an op, its tensors replaced by their shapes. `key` tells calls that allocate the same."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: str

    def batch(self) -> int:
        return self.args[_BATCHED[self.func._schema.name][0]].size[0]

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in tree_leaves((self.args, self.kwargs)) if isinstance(x, Shape))

    def with_batch(self, n: int) -> Call:
        where = _BATCHED[self.func._schema.name]
        args = tuple(a.with_batch(n) if i in where and isinstance(a, Shape) else a for i, a in enumerate(self.args))
        return replace(self, args=args)


def call_of(func: Any, args: Any, kwargs: Any) -> Call | None:
    """Note down a call, real or fake, whose scratch is worth a look. None for all others, and on other devices."""
    where = _BATCHED.get(func._schema.name)
    if where is None:
        return None
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    if any(t.device.type != "cpu" or t.layout is not torch.strided for t in tensors):
        return None
    first = args[where[0]]
    if not isinstance(first, Tensor) or first.dim() < 2 or first.numel() == 0:
        return None
    shapes = tree_map(
        lambda x: Shape(tuple(x.shape), x.stride(), x.dtype) if isinstance(x, Tensor) else x, (args, kwargs)
    )
    return Call(func, tuple(shapes[0]), shapes[1], f"{func} {shapes} {torch.get_num_threads()}")


class Workspaces:
    """Collects the calls of a trace, and tells the step what they need:

    `calls = Workspaces(); step = calls.told(lowtide.trace(model, args, observe=calls))`
    """

    def __init__(self) -> None:
        self.calls: list[Call | None] = []

    def begin(self) -> None:
        """A trace begins."""
        self.calls.clear()

    def __call__(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        self.calls.append(call_of(func, args, kwargs))

    def told(self, step: Step) -> Step:
        """The step with `workspace_bytes`, one per op.

        Raises:
            ValueError: if these are not the calls of that step.
        """
        if len(self.calls) != len(step.ops):
            raise ValueError(f"{len(self.calls)} calls were seen, but the step has {len(step.ops)} ops")
        found = (0 if call is None else workspace_bytes(call) for call in self.calls)
        return replace(step, workspace_bytes=tuple(found))


def traced_with_workspace(
    model: nn.Module, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
) -> Step:
    """`lowtide.trace`, whose other options are `options`, and the step told what its kernels allocate besides."""
    from lowtide.acting.trace import trace

    calls = Workspaces()
    return calls.told(trace(model, args, kwargs, observe=calls, **options))


_MEASURED: dict[str, int] = {}


def workspace_bytes(call: Call) -> int:
    """Bytes that the call allocates at its peak beyond what it leaves: measured, once per kind of call and process. 0
    if it cannot be made on its own."""
    if call.key not in _MEASURED:
        try:
            _MEASURED[call.key] = _measured(call)
        except Exception:  # an op that wants values that zeros are not: without its scratch, as if it had none
            _MEASURED[call.key] = 0
    return _MEASURED[call.key]


def _measured(call: Call) -> int:
    wanted = n = call.batch()
    while n > 2 and call.with_batch(n).nbytes > _LIMIT_BYTES:
        n //= 2
    if n == wanted:
        return _scratch(call)
    small, large = _scratch(call.with_batch(n // 2)), _scratch(call.with_batch(n))
    return max(large, large + (large - small) * (wanted - n) // (n - n // 2))


def _scratch(call: Call) -> int:
    name = call.func._schema.name
    with _disable_current_modes(), torch.set_grad_enabled(name == recurrent.FORWARD):
        args, kwargs = tree_map(lambda x: x.make() if isinstance(x, Shape) else x, (call.args, call.kwargs))
        if name == recurrent.BACKWARD:
            args = recurrent.with_real_buffer(args)
        blocks, _, _result = record_blocks(lambda: call.func(*args, **kwargs))
        running = running_bytes(blocks)
    return max(running, default=0) - (running[-1] if running else 0)
