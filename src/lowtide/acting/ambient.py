"""Settings of PyTorch that change what an op computes without being among its arguments.

A step may set them for a part of its forward (`torch.backends.cudnn.flags(enabled=False)`, a default type), and be back
to others when backward comes. What is run again must be run under the settings of its first run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import torch

_NAMES = (
    "mkldnn_enabled",
    "mkldnn_deterministic",
    "onednn_allow_tf32",
    "cudnn_enabled",
    "cudnn_benchmark",
    "cudnn_deterministic",
    "cudnn_allow_tf32",
    "cublas_allow_tf32",
    "cublas_allow_fp16_accumulation",
)


def _deterministic() -> tuple[bool, bool]:
    return torch._C._get_deterministic_algorithms(), torch._C._get_deterministic_algorithms_warn_only()


def _set_deterministic(wanted: tuple[bool, bool]) -> None:
    torch._C._set_deterministic_algorithms(wanted[0], warn_only=wanted[1])


# Some kernels look at the grad mode: oneDNN's LSTM makes its workspace only where a gradient may be wanted.
_GET: list[Callable[[], Any]] = [
    torch.is_grad_enabled, torch.get_default_dtype, torch.get_num_threads, _deterministic
]  # fmt: skip
_SET: list[Callable[[Any], Any]] = [
    torch._C._set_grad_enabled, torch.set_default_dtype, torch.set_num_threads, _set_deterministic
]  # fmt: skip
for _name in _NAMES:  # what this version of torch has of them
    _get, _set = getattr(torch._C, f"_get_{_name}", None), getattr(torch._C, f"_set_{_name}", None)
    if _get is not None and _set is not None:
        _GET.append(_get)
        _SET.append(_set)

Settings = tuple[Any, ...]


def _readable() -> list[int]:
    found: list[int] = []
    for i, get in enumerate(_GET):
        try:
            get()
        except RuntimeError:  # torch refuses to tell TF32 flags once its newer precision settings were used
            continue
        found.append(i)
    return found


def settings() -> Settings:
    """The settings now. Takes a microsecond."""
    try:
        return tuple([get() for get in _GET])
    except RuntimeError:
        readable = _readable()
        return tuple([_GET[i]() if i in readable else None for i in range(len(_GET))])


@contextlib.contextmanager
def under(then: Settings) -> Generator[None]:
    """With the settings of `then`; afterwards as it is now."""
    now = settings()
    changed = [i for i, (a, b) in enumerate(zip(then, now, strict=True)) if a != b and a is not None and b is not None]
    try:
        for i in changed:
            _SET[i](then[i])
        yield
    finally:
        for i in changed:
            _SET[i](now[i])
