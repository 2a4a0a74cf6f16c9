"""A tensor that has a shape and no content, for backward ops that look at the shape alone."""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import torch
from torch import Tensor


def blank(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of that geometry whose content is not defined. Not for use under a fake mode.

    On the CPU it is made of pages that are mapped and never written, so that it takes no memory; reading it would be
    safe, and give zeros. On `meta` there is none anyway. Elsewhere it has memory like any other.
    """
    if device.type == "cpu" and hasattr(mmap, "MAP_ANONYMOUS") and 0 not in size:
        n = sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        pages = mmap.mmap(-1, n * dtype.itemsize, flags=flags)
        return torch.frombuffer(pages, dtype=dtype, count=n).as_strided(size, stride)
    if device.type == "meta":
        with torch._C._DisableTorchDispatch():  # nobody is to count it
            return torch.empty_strided(size, stride, dtype=dtype, device=device)
    return torch.empty_strided(size, stride, dtype=dtype, device=device)
