"""Watching for writes that pass no op, while a step is traced for real.

A NumPy array that shares memory, a custom kernel, C++ that writes through a pointer: such writes are seen by nobody but
the next reader. What they touch cannot be made again by running ops.
"""

from __future__ import annotations

import weakref
import zlib
from typing import Any

import torch
from torch import Tensor, UntypedStorage


class Contents:
    """Fingerprints of the storages that ops have read or written."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[UntypedStorage], int]] = {}

    def wrote(self, t: Tensor) -> None:
        """An op has just written to the storage of `t`: take its content for the right one."""
        storage = t.untyped_storage()
        key = storage._cdata

        def died(ref: Any) -> None:
            found = self._known.get(key)
            if found is not None and found[0] is ref:
                del self._known[key]

        self._known[key] = (weakref.ref(storage, died), _fingerprint(storage))

    def changed(self, t: Tensor) -> bool:
        """Whether the storage of `t` has another content than the last op left there. Asked once per change."""
        storage = t.untyped_storage()
        found = self._known.get(storage._cdata)
        if found is None or found[0]() is not storage:
            self.wrote(t)
            return False
        if _fingerprint(storage) == found[1]:
            return False
        self.wrote(t)
        return True

    def changed_keys(self) -> list[int]:
        """Keys of all storages alive that have changed unseen."""
        alive = [(key, ref(), was) for key, (ref, was) in self._known.items()]
        return [key for key, storage, was in alive if storage is not None and _fingerprint(storage) != was]


def _fingerprint(storage: UntypedStorage) -> int:
    if storage.nbytes() == 0 or storage.device.type == "meta":
        return 0
    whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)  # pyright: ignore[reportArgumentType]
    return zlib.crc32(memoryview(whole.cpu().numpy()))  # pyright: ignore[reportArgumentType]
