"""oneDNN's LSTM: the buffer that its forward leaves for backward, which PyTorch's fake kernel takes to be empty.

The buffer (gates and states of every time) is larger than input and output together; a plan that takes it for nothing
came out 29 to 40 % below the peak of a translation model. Its size is oneDNN's secret, so one call is made for real, on
zeros. Each of its parts grows with the number of times and is rounded up to pages.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore

FORWARD = "aten::mkldnn_rnn_layer"
BACKWARD = "aten::mkldnn_rnn_layer_backward"

# Calls of more multiplications are carried on from a shorter sequence, of 16 times at least, and half of it.
_MOST_WORK = 10**9
_SHORTEST = 16
_BUFFER = 3  # of forward's outputs
_BUFFER_ARGUMENT = 22  # of backward's arguments

_SIZES: dict[tuple[Any, ...], int] = {}


def with_buffer(func: Any, args: tuple[Any, ...], out: Any) -> Any:
    """`out`, what the fake kernel of an op returned for (fake) `args`, with a buffer as large as the real kernel's. Of
    all ops but oneDNN's LSTM `out` itself."""
    if func._schema.name != FORWARD or out[_BUFFER].numel() > 0:
        return out
    buffer = torch.empty(buffer_bytes(args), dtype=torch.uint8, device=out[_BUFFER].device)
    return (*out[:_BUFFER], buffer, *out[_BUFFER + 1 :])


def buffer_bytes(args: tuple[Any, ...]) -> int:
    """Size of the buffer for these arguments of forward, real or fake; the input is (times, batch, features)."""
    (times, batch, features), dtype = args[0].shape, args[0].dtype
    key = (times, batch, features, dtype, *args[7:], torch.get_num_threads())
    key = tuple(tuple(k) if isinstance(k, list) else k for k in key)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if key not in _SIZES:
        work = batch * sum(w.numel() for w in args[1:3])  # of one time
        n = min(times, max(_SHORTEST, _MOST_WORK // max(work, 1)))
        whole = _real(args, n).nbytes
        if n < times:
            half = _real(args, n // 2).nbytes
            whole += (whole - half) * (times - n) // (n - n // 2)
        _SIZES[key] = whole
    return _SIZES[key]


def with_real_buffer(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Real arguments of backward, the buffer replaced by one that forward made: backward reads and writes it without a
    look at its size."""
    x, weights, hidden = args[0], args[1:5], args[5:7]
    reverse, mode, size, layers, biases, train, bidirectional, batch_sizes, batch_first = args[13:_BUFFER_ARGUMENT]
    rest = (reverse, batch_sizes, mode, size, layers, biases, bidirectional, batch_first, train)
    with torch.enable_grad():
        buffer = torch.ops.aten.mkldnn_rnn_layer.default(x, *weights, *hidden, *rest)[_BUFFER]
    return (*args[:_BUFFER_ARGUMENT], buffer, *args[_BUFFER_ARGUMENT + 1 :])


def _real(args: tuple[Any, ...], times: int) -> Tensor:
    """The buffer of a forward of so many times, on zeros."""

    def zeros(t: Any) -> Any:
        return torch.zeros(t.shape, dtype=t.dtype, device="cpu") if isinstance(t, Tensor) else t

    # Where gradients are off, forward leaves no buffer; nothing here requires one, so nothing is recorded.
    with _disable_current_modes(), torch.enable_grad():
        x = torch.zeros((times, *args[0].shape[1:]), dtype=args[0].dtype, device="cpu")
        out = torch.ops.aten.mkldnn_rnn_layer.default(x, *map(zeros, args[1:]))
    return out[_BUFFER]
