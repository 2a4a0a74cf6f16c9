"""What a plan keeps and recomputes, module by module, at every depth of the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lowtide.planning.plan import Plan
    from lowtide.planning.step import Step


@dataclass(frozen=True, slots=True)
class ModuleWork:
    """What happens within one module and those inside it.

    Attributes:
        module: its path; '' is the model itself and the loss.
        saved_bytes: activations its ops wrote that autograd saves, each storage counted once.
        kept_bytes: the part of them that stays in memory from forward on.
        recompute_ops, recompute_flops: runs of its ops that the plan adds, and their arithmetic.
        added_s: seconds of those, 0 if the step has no costs.
    """

    module: str
    saved_bytes: int
    kept_bytes: int
    recompute_ops: int
    recompute_flops: int
    added_s: float

    @property
    def dropped_bytes(self) -> int:
        return self.saved_bytes - self.kept_bytes


def module_work(plan: Plan, depth: int) -> list[ModuleWork]:
    """A row per module of at most `depth` names, in the order of the network. They add up to the plan."""
    step = plan.step
    rows: dict[str, list[float]] = {}

    def row(module: str) -> list[float]:
        return rows.setdefault(".".join(module.split(".")[:depth]), [0, 0, 0, 0, 0.0])

    for op in step.ops[: step.n_forward]:
        row(op.module)
    for storage, (module, kept) in saved_storages(step, plan.keep).items():
        size = step.storages[storage].nbytes
        row(module)[0] += size
        row(module)[1] += size if kept else 0
    for ops in plan.runs.values():
        for o in ops:
            r = row(step.ops[o].module)
            r[2] += 1
            r[3] += step.ops[o].flops
            r[4] += step.seconds[o] if step.seconds else 0.0
    return [
        ModuleWork(name, int(saved), int(kept), int(ops), int(flops), added)
        for name, (saved, kept, ops, flops, added) in rows.items()
        if saved or ops
    ]


def depths(step: Step) -> int:
    """The most names in a module's path."""
    return max((op.module.count(".") + 1 for op in step.ops[: step.n_forward] if op.module), default=1)


def saved_storages(step: Step, keep: frozenset[int]) -> Mapping[int, tuple[str, bool]]:
    """Storage written in forward and saved by autograd -> module that wrote it first, and whether it is kept."""
    found: dict[int, tuple[str, bool]] = {}
    for save in sorted(step.saves, key=lambda s: step.values[s.value].op):
        value = step.values[save.value]
        if 0 <= value.op < step.n_forward:
            module, kept = found.get(value.storage, (step.ops[value.op].module, False))
            found[value.storage] = (module, kept or save.value in keep)
    return found
