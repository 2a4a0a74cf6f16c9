"""traffic: what a call moves through memory, and the type it computes in: what a roofline wants to know."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lowtide.acting.ops import OpInfo, outputs_in, tensors_in

# Ops that touch as much of their first argument as they write, however large it is: a vocabulary, a cache.
_GATHERS = frozenset(
    {
        "aten.embedding.default", "aten.index_select.default", "aten.gather.default", "aten.index.Tensor",
        "aten._unsafe_index.Tensor", "aten._embedding_bag.default", "aten._embedding_bag_forward_only.default",
    }
)  # fmt: skip


def touched_bytes(t: Tensor) -> int:
    """Bytes of the memory that a tensor looks at: an expanded one counts once."""
    nbytes = t.numel() * t.element_size()
    try:
        return min(nbytes, t.untyped_storage().nbytes())
    except (NotImplementedError, RuntimeError):  # sparse and other tensors without a storage
        return nbytes


def traffic_bytes(info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> int:
    """Bytes that one call reads and writes: its tensor arguments, its outputs, and once more what it writes in place.
    Lookups read as much of their table as they write. An output that is an argument handed back counts once."""
    given = [*tensors_in(args), *tensors_in(kwargs.values())]
    changed = [args[p] for p in info.mutates if p < len(args)] + [kwargs[k] for k in info.mutates_kw if k in kwargs]
    written = [*tensors_in(changed), *(t for t in outputs_in(out) if t is not None and not any(t is g for g in given))]
    total = sum(map(touched_bytes, written))
    if info.undefined:
        return 0
    for k, t in enumerate(given):
        if k == 0 and info.name in _GATHERS:
            total += min(touched_bytes(t), total)
        elif not (k == 0 and info.overwrites):
            total += touched_bytes(t)
    return total


def compute_dtype(args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> str:
    """The floating point type of the first tensor argument that has one, else of the outputs: `'float32'`, or ''."""
    for t in (*tensors_in(args), *tensors_in(kwargs.values()), *outputs_in(out)):
        if t is not None and (t.dtype.is_floating_point or t.dtype.is_complex):
            return str(t.dtype).removeprefix("torch.")
    return ""
