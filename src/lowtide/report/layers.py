"""The memory of a step by what it is for, moment by moment."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from lowtide.planning.blocks import Kind, kind_of
from lowtide.planning.compress import uncompressed
from lowtide.planning.simulate import keep_all, simulate

if TYPE_CHECKING:
    from lowtide.planning.plan import Plan
    from lowtide.planning.simulate import Timeline
    from lowtide.planning.step import Step


@dataclass(frozen=True)
class Layers:
    """Bytes per kind and moment; all together they are the timeline's level plus what stood before the step.

    Attributes:
        timeline: what was simulated.
        of: kind -> bytes per moment, in the order in which they are stacked from below.
    """

    timeline: Timeline
    of: dict[Kind, list[int]]

    def total(self, moment: int) -> int:
        return self.timeline.level_bytes[moment] + self.timeline.standing_bytes


def layers_of(step: Step, plan: Plan | None) -> Layers:
    """The layers of a plan, or of the step with everything kept."""
    return layers(simulate(step, plan), keep_all(step) if plan is None else plan.keep)


def without_plan(step: Step) -> Layers:
    """The layers of the step as PyTorch runs it: nothing dropped, nothing compressed."""
    return layers_of(uncompressed(step), None)


def layers(timeline: Timeline, keep: Collection[int]) -> Layers:
    """A timeline, taken apart. A kept activation counts as kept from the op that writes it; one that is dropped is in
    use only, as are a kernel's workspace and what backward hands from op to op."""
    step, n = timeline.step, timeline.step.n_moments
    kept = {step.values[v].storage for v in keep}
    change = {kind: [0] * (n + 1) for kind in Kind}
    for s, storage in enumerate(step.storages):
        row = change[kind_of(storage.category, s in kept)]
        if storage.birth < 0:
            row[0] += storage.nbytes
        elif storage.death > storage.birth:
            row[storage.birth] += storage.nbytes
            row[min(storage.death, n)] -= storage.nbytes
    of = {kind: list(accumulate(row[:-1])) for kind, row in change.items()}
    for op, workspace in zip(step.ops, step.workspace_bytes, strict=False):
        of[Kind.TRANSIENT][op.moment] += workspace
    of[Kind.KEPT] = [a + b for a, b in zip(of[Kind.KEPT], timeline.kept_bytes, strict=True)]
    of[Kind.RECOMPUTED] = [a + b for a, b in zip(of[Kind.RECOMPUTED], timeline.recomputed_bytes, strict=True)]
    return Layers(timeline, of)
