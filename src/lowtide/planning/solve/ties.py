"""Checkpoint sets that a chain's formula cannot tell apart, for the step to choose from.

The formula takes a segment to be there as a whole when its backward begins. On the step it is recomputed when something
of it is first asked for, and what asks before that (the activation whose output is the next checkpoint) finds less
held. On VGG16, batch 64, two sets of equal peak by the formula were at 3664 and 3467 MB on the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lowtide.planning.chain import Chain
from lowtide.planning.solve.greedy import walks

Checkpoints = tuple[int, ...]


def tied(
    chain: Chain, found: Checkpoints, objective: Callable[[Checkpoints], int], others: Iterable[Checkpoints] = ()
) -> list[Checkpoints]:
    """Of `others` and the walks of `greedy` those that have the `objective` of `found`, in a fixed order, `found`
    first. There may be more such sets: they can be exponentially many."""
    least = objective(found)
    return [found, *(c for c in sorted({*others, *walks(chain)} - {found}) if objective(c) == least)]
