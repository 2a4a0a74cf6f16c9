"""What becomes of the activations that autograd saves: kept, held as a code, or recomputed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lowtide.planning.compress import SHAPE, uncompressed

if TYPE_CHECKING:
    from collections.abc import Collection

    from lowtide.planning.step import Step


@dataclass(frozen=True, slots=True)
class Saved:
    """A storage that forward wrote and autograd saves. The bytes that are neither kept nor compressed away are those
    of a storage that is dropped and recomputed.

    Attributes:
        module, op: module path and id of the op that wrote what is saved first.
        nbytes: its size.
        kept_bytes: what is in memory of it from forward on: all, the code that stands for it, or nothing.
        compressed_bytes: what a code saves.
    """

    module: str
    op: int
    nbytes: int
    kept_bytes: int
    compressed_bytes: int

    @property
    def recomputed_bytes(self) -> int:
        return self.nbytes - self.kept_bytes - self.compressed_bytes


def saved_storages(step: Step, keep: Collection[int]) -> list[Saved]:
    """The storages in the order in which they are written. One counts as kept if a plan keeps one of its values, and
    as compressed if backward is answered from codes that are kept, or from shapes, alone."""
    plain = uncompressed(step)
    coded = {s: c for c in step.codes for s in c.saves}
    of: dict[int, list[int]] = {}
    for i in sorted(range(len(plain.saves)), key=lambda i: plain.values[plain.saves[i].value].op):
        value = plain.values[plain.saves[i].value]
        if 0 <= value.op < plain.n_forward:
            of.setdefault(value.storage, []).append(i)
    out: list[Saved] = []
    for storage, saves in of.items():
        op, size = plain.values[plain.saves[saves[0]].value].op, plain.storages[storage].nbytes
        kept, compressed = 0, 0
        codes = [coded[i] for i in saves if i in coded]
        if any(plain.saves[i].value in keep for i in saves):
            kept = size
        elif len(codes) == len(saves) and all(c.codec == SHAPE or c.value in keep for c in codes):
            kept = sum(step.nbytes(v) for v in {c.value for c in codes})
            compressed = size - kept
        out.append(Saved(plain.ops[op].module, op, size, kept, compressed))
    return out
