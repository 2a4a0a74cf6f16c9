"""What a plan does to saved values, added up by module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from lowtide.planning.step import Step


@dataclass(frozen=True, slots=True)
class ModuleBytes:
    """Bytes of activations that the ops of one module wrote and autograd saves. `kept_bytes` of `saved_bytes` stay in
    memory from forward on; the rest is recomputed."""

    module: str
    saved_bytes: int
    kept_bytes: int

    @property
    def dropped_bytes(self) -> int:
        return self.saved_bytes - self.kept_bytes


def module_table(step: Step, keep: Collection[int], rows: int = 12) -> list[ModuleBytes]:
    """At most `rows` modules in the order of the network, from as deep in it as that many rows allow; smaller modules
    are added up as `(n others)` if even the outermost ones are too many. Bytes held twice are counted once: a storage
    counts as kept if a plan keeps one of its values."""
    saved: dict[int, str] = {}
    kept: set[int] = set()
    for save in sorted(step.saves, key=lambda s: step.values[s.value].op):
        value = step.values[save.value]
        if value.op < 0 or value.op >= step.n_forward:
            continue
        saved.setdefault(value.storage, step.ops[value.op].module)
        if save.value in keep:
            kept.add(value.storage)
    sizes = {s: step.storages[s].nbytes for s in saved}
    deepest = max((m.count(".") + 1 for m in saved.values()), default=1)
    for depth in range(deepest, 0, -1):
        table = _group(saved, sizes, kept, depth)
        if len(table) <= rows:
            return table
    return _fold(_group(saved, sizes, kept, 1), rows)


def _group(saved: Mapping[int, str], sizes: Mapping[int, int], kept: set[int], depth: int) -> list[ModuleBytes]:
    total: dict[str, list[int]] = {}
    for storage, module in saved.items():
        name = ".".join(module.split(".")[:depth])
        row = total.setdefault(name, [0, 0])
        row[0] += sizes[storage]
        row[1] += sizes[storage] if storage in kept else 0
    return [ModuleBytes(name, a, b) for name, (a, b) in total.items()]


def _fold(table: list[ModuleBytes], rows: int) -> list[ModuleBytes]:
    by_size = sorted(range(len(table)), key=lambda i: (-table[i].saved_bytes, i))
    large = sorted(by_size[: rows - 1])
    rest = [table[i] for i in by_size[rows - 1 :]]
    others = ModuleBytes(f"({len(rest)} others)", sum(r.saved_bytes for r in rest), sum(r.kept_bytes for r in rest))
    return [*(table[i] for i in large), others]
