"""What an ATen op does to storage, read from its schema, plus the few facts that schemas do not tell.

`trace` and `tape` must sort the op stream in the same way, or plans would not match live steps: both ask here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor

# Ops whose output shares its input's storage although the schema does not say so.
_SILENT_VIEWS = frozenset({"aten::_unsafe_view", "aten::_reshape_alias", "aten::_conj_physical_view"})

# Batch norm writes running statistics without saying so in its schema (native, cudnn, miopen), or saying so (legit).
# name -> (positions of the statistics, position of the `training` flag or None where it always trains). In training
# the outputs do not depend on the old statistics, so a replay may work on scratch ones.
_NORM_STATISTICS: dict[str, tuple[tuple[int, int], int | None]] = {
    "aten::native_batch_norm": ((3, 4), 5),
    "aten::cudnn_batch_norm": ((3, 4), 5),
    "aten::miopen_batch_norm": ((3, 4), 5),
    "aten::_native_batch_norm_legit": ((3, 4), 5),
    "aten::_batch_norm_with_update": ((3, 4), None),
}

# Outputs without content: whatever is read from them before they are overwritten was put there by somebody whom the
# dispatcher does not see (a custom kernel, NumPy sharing the memory).
_UNDEFINED = frozenset(
    {
        "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided",
        "aten::empty_permuted", "aten::empty_quantized", "aten::_empty_affine_quantized",
    }
)  # fmt: skip

# In-place ops that write every element of their first argument without reading it.
_OVERWRITES = frozenset(
    {
        "aten::zero_", "aten::fill_", "aten::copy_", "aten::normal_", "aten::uniform_", "aten::bernoulli_",
        "aten::random_", "aten::exponential_", "aten::log_normal_", "aten::cauchy_", "aten::geometric_",
    }
)  # fmt: skip

# Copies that fake and real streams disagree on now and then: the matcher may step over them.
_COPIES = frozenset({"aten::clone", "aten::_to_copy", "aten::contiguous", "aten::lift_fresh_copy"})

# Ops of these namespaces compute their outputs from their arguments and nothing else. Of others nothing is known.
_TRUSTED = frozenset({"aten", "prims", "torchvision"})

# Collectives. They write to tensors that their schemas do not mark, and what they write to may be let go and filled
# again behind everybody's back: sharded training resizes the storages of gathered parameters.
_COLLECTIVES = frozenset({"c10d", "fsdp", "_c10d_functional", "symm_mem"})

# Ops that change what a storage *is*: nothing that touches such a storage is replayed.
_RESHAPES_STORAGE = frozenset({"aten::resize_", "aten::set_", "aten::resize_as_", "aten::_resize_output_"})


@dataclass(frozen=True, slots=True, eq=False)
class OpInfo:
    """How one op overload treats storage.

    Attributes:
        passive: it neither allocates nor writes (a view, or a question about metadata): not an op for us.
        mutates: positional indices of written tensor arguments.
        mutates_kw: names of written keyword-only arguments (`out=`).
        mutates_lists: some of what it writes comes in lists (`_foreach_add_`): see `called`.
        statistics: positions of batch-norm statistics and of the training flag, if it is such an op.
        random: it draws from a generator.
        collective: it exchanges data with other processes. Streams are matched without such ops.
        undefined: its output has no content yet.
        overwrites: it writes its first argument whole, without reading it.
        copy: see _COPIES.
        pinned: '' or why its outputs can never be recomputed.
    """

    name: str
    passive: bool
    mutates: tuple[int, ...]
    mutates_kw: tuple[str, ...]
    mutates_lists: bool
    statistics: tuple[tuple[int, int], int | None] | None
    random: bool
    collective: bool
    undefined: bool
    overwrites: bool
    copy: bool
    pinned: str

    @property
    def writes_in_place(self) -> bool:
        return bool(self.mutates or self.mutates_kw or self.statistics)


def _mentions_tensor(type_text: str) -> bool:
    return "Tensor" in type_text


@cache
def op_info(func: OpOverload) -> OpInfo:
    """The facts about `func`. Cached: the tape asks for every live op."""
    schema = func._schema
    mutates: list[int] = []
    mutates_kw: list[str] = []
    aliases = lists = False
    position = 0
    for arg in schema.arguments:
        if arg.alias_info is not None:
            if not arg.alias_info.is_write:
                aliases = True
            elif arg.kwarg_only:
                mutates_kw.append(arg.name)
            else:
                mutates.append(position)
            lists = lists or (arg.alias_info.is_write and "List" in str(arg.type))
        if not arg.kwarg_only:
            position += 1
    returns_tensor = any(_mentions_tensor(str(r.type)) for r in schema.returns)
    writes = bool(mutates or mutates_kw)
    if func.namespace == "c10d":  # without marks: everything may be written
        positional = [a for a in schema.arguments if not a.kwarg_only]
        mutates = [i for i, a in enumerate(positional) if _mentions_tensor(str(a.type))]
        writes = bool(mutates)
    view = (aliases and not writes) or schema.name in _SILENT_VIEWS
    statistics = _NORM_STATISTICS.get(schema.name)
    if statistics is not None:
        mutates = [m for m in mutates if m not in statistics[0]]
    pinned = ""
    if func.namespace not in _TRUSTED:
        pinned = f"{schema.name} is a custom op: what it depends on besides its arguments is not known"
    elif schema.name in _RESHAPES_STORAGE:
        pinned = f"{schema.name} changes a storage's size"
    return OpInfo(
        name=str(func),
        passive=view or not (writes or returns_tensor),
        mutates=tuple(mutates),
        mutates_kw=tuple(mutates_kw),
        mutates_lists=lists,
        statistics=statistics,
        random=torch.Tag.nondeterministic_seeded in func.tags,
        collective=func.namespace in _COLLECTIVES,
        undefined=schema.name in _UNDEFINED,
        overwrites=schema.name in _OVERWRITES,
        copy=schema.name in _COPIES,
        pinned=pinned,
    )


def called(func: OpOverload, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`func(*args, **kwargs)`, as a dispatch mode has to call it.

    Ops that write to lists of tensors leave it to the ops they call inside to move version counters, which those do
    not where any dispatch mode is active (torch 2.14): autograd then takes what was written for unchanged, and a view
    keeps the history it had before the write. So the counters are moved here.
    """
    if not info.mutates_lists:
        return func(*args, **kwargs)
    written = [
        *tensors_in(args[p] for p in info.mutates if p < len(args)),
        *tensors_in(kwargs[k] for k in info.mutates_kw if k in kwargs),
    ]
    before = [None if t.is_inference() else t._version for t in written]
    out = func(*args, **kwargs)
    for t, version in zip(written, before, strict=True):
        if version is not None and t._version == version:
            torch.autograd.graph.increment_version(t)
    return out


def statistics_written(info: OpInfo, args: tuple[Any, ...]) -> tuple[int, ...]:
    """Positions of the running statistics that this very call of a batch norm updates."""
    if info.statistics is None:
        return ()
    where, flag = info.statistics
    if flag is not None and (len(args) <= flag or not args[flag]):
        return ()
    return tuple(p for p in where if len(args) > p and isinstance(args[p], Tensor))


def tensors_in(args: Any) -> Iterator[Tensor]:
    """Every tensor in op arguments: they nest by one level of list or tuple at most."""
    for a in args:
        if isinstance(a, Tensor):
            yield a
        elif isinstance(a, (list, tuple)):
            for b in a:  # pyright: ignore[reportUnknownVariableType]
                if isinstance(b, Tensor):
                    yield b


def outputs_in(out: Any) -> list[Tensor | None]:
    """An op's outputs in schema order, flattened; None where there is no tensor."""
    if isinstance(out, Tensor):
        return [out]
    if isinstance(out, (list, tuple)):
        flat: list[Tensor | None] = []
        for o in out:  # pyright: ignore[reportUnknownVariableType]
            if isinstance(o, (list, tuple)):
                flat.extend(x if isinstance(x, Tensor) else None for x in o)  # pyright: ignore[reportUnknownVariableType]
            else:
                flat.append(o if isinstance(o, Tensor) else None)
        return flat
    return []


def is_plain(t: Tensor) -> bool:
    """Whether (storage, dtype, size, stride, offset) tells all about the tensor: strided, no lazy conjugate or
    negative bit, no quantizer, no wrapper that stands for other tensors."""
    if type(t) in _PLAIN_TYPES and t.dtype in _REAL:  # which can be neither conjugate nor quantized
        return t.layout is torch.strided and not t.is_neg()
    return t.layout is torch.strided and not (t.is_conj() or t.is_neg() or t.is_quantized) and not is_wrapper(t)


def is_wrapper(t: Tensor) -> bool:
    """Whether it has a dispatch of its own: its class decides what ops do, and where its memory is."""
    return type(t) not in _PLAIN_TYPES and type(t).__torch_dispatch__ is not Tensor.__torch_dispatch__


_PLAIN_TYPES = frozenset({Tensor, nn.Parameter, FakeTensor})
_REAL = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool})


def storage_key(t: Tensor) -> int:
    """Address of the tensor's StorageImpl: unique among storages that are alive. Of strided tensors only."""
    return t.untyped_storage()._cdata


def memory_of(t: Tensor) -> list[Tensor]:
    """The strided tensors that hold a tensor's memory: itself, or the parts of a sparse one. Others hide theirs."""
    if t.layout is torch.strided:
        return [t]
    try:
        if t.layout is torch.sparse_coo:
            return [t._indices(), t._values()]
        if t.layout in (torch.sparse_csr, torch.sparse_bsr):
            return [t.crow_indices(), t.col_indices(), t.values()]
        if t.layout in (torch.sparse_csc, torch.sparse_bsc):
            return [t.ccol_indices(), t.row_indices(), t.values()]
    except (RuntimeError, NotImplementedError):
        pass
    return []


def held_in(tensors: Iterable[Tensor | None]) -> Iterator[Tensor]:
    """All of `memory_of`, for many tensors."""
    for t in tensors:
        if t is not None:
            yield from memory_of(t)
