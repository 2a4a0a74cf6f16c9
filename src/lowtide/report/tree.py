"""What a plan keeps and recomputes, module by module, at every depth of the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lowtide.report.saved import saved_storages

if TYPE_CHECKING:
    from lowtide.planning.plan import Plan
    from lowtide.planning.step import Step


@dataclass(frozen=True, slots=True)
class ModuleWork:
    """What happens within one module and those inside it.

    Attributes:
        module: its path; '' is the model itself and the loss.
        peak_bytes: what it accounts for at the plan's peak, parameters and the like included (`Timeline.by_module`).
        saved_bytes: activations its ops wrote that autograd saves, each storage counted once.
        kept_bytes: the part of them that stays in memory from forward on.
        recompute_ops, recompute_flops: runs of its ops that the plan adds, and their arithmetic.
        compressed_bytes: what codes in the place of them save.
        added_s: seconds of those, 0 if the step has no costs.
    """

    module: str
    peak_bytes: int
    saved_bytes: int
    kept_bytes: int
    recompute_ops: int
    recompute_flops: int
    added_s: float
    compressed_bytes: int

    @property
    def dropped_bytes(self) -> int:
        return self.saved_bytes - self.kept_bytes - self.compressed_bytes


def module_work(plan: Plan, depth: int, at_peak: Mapping[str, int]) -> list[ModuleWork]:
    """A row per module of at most `depth` names, in the order of the network. They add up to the plan.

    Args:
        at_peak: module -> bytes at the peak.
    """
    step = plan.step
    rows: dict[str, list[float]] = {}
    peak: dict[str, int] = {}

    def row(module: str) -> list[float]:
        return rows.setdefault(".".join(module.split(".")[:depth]), [0, 0, 0, 0, 0.0, 0])

    for op in step.ops[: step.n_forward]:
        row(op.module)
    for saved in saved_storages(step, plan.keep):
        r = row(saved.module)
        r[0] += saved.nbytes
        r[1] += saved.kept_bytes
        r[5] += saved.compressed_bytes
    for ops in plan.runs.values():
        for o in ops:
            r = row(step.ops[o].module)
            r[2] += 1
            r[3] += step.ops[o].flops
            r[4] += step.seconds[o] if step.seconds else 0.0
    for module, size in at_peak.items():
        row(module)
        name = ".".join(module.split(".")[:depth])
        peak[name] = peak.get(name, 0) + size
    return [
        ModuleWork(name, peak.get(name, 0), int(saved), int(kept), int(ops), int(flops), added, int(compressed))
        for name, (saved, kept, ops, flops, added, compressed) in rows.items()
        if saved or ops or peak.get(name)
    ]


def depths(step: Step) -> int:
    """The most names in a module's path."""
    return max((op.module.count(".") + 1 for op in step.ops[: step.n_forward] if op.module), default=1)
