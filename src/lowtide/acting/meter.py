"""`StorageMeter`: the second witness. It counts storages as the dispatcher sees them come and go.

It works on real, fake and `meta` tensors alike, so that the same peak can be had where nothing is allocated. It knows
tensors only, not the workspace of kernels: the difference to `measure` is that workspace.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes  # pyright: ignore
from torch.utils._pytree import tree_leaves

from lowtide.acting.accumulate import adds_in_place
from lowtide.acting.ops import called, op_info


class StorageMeter(TorchDispatchMode):
    """While it is entered: bytes of the storages that ops create, from their first op to their death, forward and
    backward. Gradients that autograd would add up in place are counted so, although no mode sees it (`accumulate`).

    Attributes:
        current_bytes: bytes of such storages alive now.
        peak_bytes: the most there were after any op.
        peak_op: name of the op after which they were the most.
        ops: number of ops seen.
    """

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._current = 0
        self.peak_bytes = 0
        self.peak_op = ""
        self.ops = 0
        # The address of a storage is used again as soon as it is freed: the finalizer takes it out in time.
        self._live: dict[int, tuple[weakref.ref[UntypedStorage], int]] = {}
        self._watched: dict[int, Any] = {}  # weak references of torch's own, where Python's come too late

    @property
    def current_bytes(self) -> int:
        self._sweep()
        return self._current

    def reset_peak(self) -> None:
        """Look for the peak anew, from what is alive now."""
        self.peak_bytes = self.current_bytes
        self.peak_op = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = {_key(s): s for s in _storages((args, kwargs))}
        handed_over = _key(args[0].untyped_storage()) if adds_in_place(func, args, kwargs) else None
        out = called(func, op_info(func), args, kwargs) if isinstance(func, OpOverload) else func(*args, **kwargs)
        self.ops += 1
        for storage in _storages(out):
            if _key(storage) not in given and _key(storage) not in self._live:
                self._add(storage)
        if handed_over is not None:
            self._remove(handed_over)
        if func._schema.is_mutable:
            for key, storage in given.items():
                self._resize(key, storage)
        if self._current > self.peak_bytes and self.current_bytes > self.peak_bytes:
            self.peak_bytes, self.peak_op = self._current, str(func)
        return out

    def _add(self, storage: UntypedStorage) -> None:
        key = _key(storage)
        self._live[key] = (weakref.ref(storage, lambda _: self._remove(key)), storage.nbytes())
        self._current += storage.nbytes()
        if _LATE:
            self._watched[key] = storage._weak_ref()

    def _remove(self, key: int) -> None:
        found = self._live.pop(key, None)
        if found is not None:
            self._current -= found[1]
        watch = self._watched.pop(key, None)
        if watch is not None:
            UntypedStorage._free_weak_ref(watch)

    def _sweep(self) -> None:
        """Take out storages whose memory is gone."""
        for key in [k for k, watch in self._watched.items() if UntypedStorage._expired(watch)]:
            self._remove(key)

    def _resize(self, key: int, storage: UntypedStorage) -> None:
        """`resize_` and out variants let an existing storage grow."""
        found = self._live.get(key)
        if found is not None and found[1] != storage.nbytes():
            self._live[key] = (found[0], storage.nbytes())
            self._current += storage.nbytes() - found[1]


def _is_late() -> bool:
    """Whether Python hears of the end of a storage only when torch's own weak references to it are gone, too (up to
    torch 2.9). Its memory is free by then."""
    with _disable_current_modes():
        t = torch.empty(1, device="cpu")
        storage = t.untyped_storage()
        heard: list[Any] = []
        ref, watch = weakref.ref(storage, heard.append), storage._weak_ref()
        del storage  # now the tensor alone holds it
        del t
        late = not heard
        UntypedStorage._free_weak_ref(watch)
        del ref
    return late


_LATE = _is_late()


def _key(storage: UntypedStorage) -> int:
    return storage._cdata  # pyright: ignore[reportPrivateUsage]


def _storages(tree: Any) -> list[UntypedStorage]:
    out: list[UntypedStorage] = []
    for leaf in tree_leaves(tree):
        if isinstance(leaf, Tensor):
            try:
                out.append(leaf.untyped_storage())
            except (NotImplementedError, RuntimeError):  # sparse and other tensors that have no storage
                continue
    return out
