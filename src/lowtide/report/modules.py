"""What a plan does to saved values, added up by module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lowtide.report.saved import Saved, saved_storages

if TYPE_CHECKING:
    from collections.abc import Collection

    from lowtide.planning.step import Step


@dataclass(frozen=True, slots=True)
class ModuleBytes:
    """Bytes of activations that the ops of one module wrote and autograd saves. `kept_bytes` of `saved_bytes` stay in
    memory from forward on, codes that stand for them included, which make `compressed_bytes` less; the rest is
    recomputed."""

    module: str
    saved_bytes: int
    kept_bytes: int
    compressed_bytes: int = 0

    @property
    def dropped_bytes(self) -> int:
        return self.saved_bytes - self.kept_bytes - self.compressed_bytes


def module_table(step: Step, keep: Collection[int], rows: int = 12) -> list[ModuleBytes]:
    """At most `rows` modules in the order of the network, from as deep in it as that many rows allow; smaller modules
    are added up as `(n others)` if even the outermost ones are too many. Bytes held twice are counted once: a storage
    counts as kept if a plan keeps one of its values."""
    saved = saved_storages(step, keep)
    deepest = max((m.count(".") + 1 for m in (s.module for s in saved)), default=1)
    for depth in range(deepest, 0, -1):
        table = _group(saved, depth)
        if len(table) <= rows:
            return table
    return _fold(_group(saved, 1), rows)


def _group(saved: Sequence[Saved], depth: int) -> list[ModuleBytes]:
    total: dict[str, list[int]] = {}
    for s in saved:
        name = ".".join(s.module.split(".")[:depth])
        row = total.setdefault(name, [0, 0, 0])
        row[0] += s.nbytes
        row[1] += s.kept_bytes
        row[2] += s.compressed_bytes
    return [ModuleBytes(name, *row) for name, row in total.items()]


def _fold(table: list[ModuleBytes], rows: int) -> list[ModuleBytes]:
    by_size = sorted(range(len(table)), key=lambda i: (-table[i].saved_bytes, i))
    large = sorted(by_size[: rows - 1])
    rest = [table[i] for i in by_size[rows - 1 :]]
    others = ModuleBytes(
        f"({len(rest)} others)",
        sum(r.saved_bytes for r in rest),
        sum(r.kept_bytes for r in rest),
        sum(r.compressed_bytes for r in rest),
    )
    return [*(table[i] for i in large), others]
