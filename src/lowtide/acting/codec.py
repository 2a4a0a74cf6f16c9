"""Codecs: from a storage to a smaller tensor, and back to a storage that is as good for those who asked for it.

What each of them keeps, and how large its codes are, stands in `planning.compress`. They work on whole storages, flat,
in chunks, so that they allocate next to nothing besides what they return; nothing waits for a GPU. A codec that cannot
be sure to be lossless for what it is given returns None, and the tensor is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from lowtide.planning.compress import chunk_bytes

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_HEAD_BYTES = 8


@dataclass(frozen=True)
class Codec:
    """One codec for tensors of one type.

    Attributes:
        name: `nonpositive`, `positive`, `bits`, `two` or `index`.
        dtype: of the elements of the storages.
        places: for indices: they are less than this.
    """

    name: str
    dtype: torch.dtype
    places: int = 0

    @property
    def is_sign(self) -> bool:
        """It keeps a sign, so that what it decodes is good for one kind of backward op alone."""
        return self.name in ("nonpositive", "positive")

    def encode(self, whole: Tensor) -> Tensor | None:
        """The code of a flat tensor of all the elements of a storage, or None if it has no such code."""
        if self.name == "index":
            return whole.to(_INTEGERS[index_bytes(self.places)]) if self.places else None
        if self.name == "two":
            return _encode_two(whole)
        code = whole.new_zeros(-(-whole.numel() // 8), dtype=torch.uint8)
        flags = _chunk(code)
        for part, byte, bit in _places(whole, code, len(flags)):
            here = flags[: len(part)]
            if self.name == "bits":
                here.copy_(part)
            else:
                (torch.le if self.name == "nonpositive" else torch.gt)(part, 0, out=here)
            byte.add_(here.view(torch.uint8), alpha=1 << bit)
        return code.bitwise_not_() if self.name == "nonpositive" else code  # so that all decode alike

    def decode(self, code: Tensor, n: int) -> Tensor:
        """A flat tensor of `n` elements that stands for the one that was encoded.

        The same elements for `bits`, `two` and `index`; for signs 0 and 1, so that `<= 0` or `> 0` says the same.
        """
        whole = code.new_empty(n, dtype=self.dtype)
        if self.name == "index":
            whole.copy_(code)
            if index_bytes(self.places) < 8:
                whole.bitwise_and_((1 << 8 * index_bytes(self.places)) - 1)
            return whole
        if self.name == "bits":
            plain = whole.view(torch.uint8)
            for part, byte, bit in _places(plain, code, max(code.numel(), 1)):
                torch.bitwise_and(byte, 1 << bit, out=part)
                part.ne_(0)
            return whole
        head, bits = (_HEAD_BYTES, code[_HEAD_BYTES:]) if self.name == "two" else (0, code)
        target = whole.view(_INTEGERS[self.dtype.itemsize]) if head else whole
        numbers = _chunk(bits).view(torch.uint8)
        for part, byte, bit in _places(target, bits, len(numbers)):
            here = numbers[: len(part)]
            torch.bitwise_right_shift(byte, bit, out=here)
            part.copy_(here.bitwise_and_(1))
            if head:
                part.mul_(code[:head].view(target.dtype)[0])
        return whole


def index_bytes(places: int) -> int:
    """Bytes that tell so many places apart."""
    return next(k for k in (1, 2, 4, 8) if places <= 1 << 8 * k)


def _encode_two(whole: Tensor) -> Tensor | None:
    """Bits of what is not zero, after 8 bytes that begin with the other value. In integers, so that zeros with a sign
    and values that are no numbers are as they were."""
    numbers = whole.view(_INTEGERS[whole.element_size()])
    code = whole.new_zeros(_HEAD_BYTES + -(-whole.numel() // 8), dtype=torch.uint8)
    value = code[:_HEAD_BYTES].view(numbers.dtype)[0]
    torch.amax(numbers, 0, out=value)
    bits = code[_HEAD_BYTES:]
    flags, others = _chunk(bits), _chunk(bits)
    wrong = _chunk(bits).zero_()
    checks = whole.device.type != "meta" and not isinstance(whole, FakeTensor)
    for part, byte, bit in _places(numbers, bits, len(flags)):
        here, other = flags[: len(part)], others[: len(part)]
        here.copy_(part)  # what is not zero
        byte.add_(here.view(torch.uint8), alpha=1 << bit)
        if checks:
            torch.ne(part, value, out=other)
            wrong[: len(part)].logical_or_(here.logical_and_(other))
    return None if checks and wrong.any() else code


def _chunk(code: Tensor) -> Tensor:
    """Room for flags."""
    return code.new_empty(min(chunk_bytes(code.device.type), code.numel()), dtype=torch.bool)


def _places(whole: Tensor, code: Tensor, chunk: int) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Parts of `whole`, each with the bytes and the bit of `code` for its elements. Bit b of the code holds the b-th
    eighth of the elements, so that parts stand together in memory."""
    n, eighth = whole.numel(), code.numel()
    for start in range(0, eighth, max(chunk, 1)):
        stop = min(start + chunk, eighth)
        for bit in range(8):
            first, last = min(bit * eighth + start, n), min(bit * eighth + stop, n)
            if first < last:
                yield whole[first:last], code[start : start + last - first], bit


def whole_of(t: Tensor) -> Tensor:
    """All elements of the storage of `t`, flat."""
    return t.as_strided((elements_of(t),), (1,), 0)


def elements_of(t: Tensor) -> int:
    return t.untyped_storage().nbytes() // t.element_size()
