"""No recomputation at all: what PyTorch does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lowtide.planning.chain import Chain
from lowtide.planning.solve.solution import Solution, Status, of_checkpoints
from lowtide.planning.solve.solver import ChainSolver


@dataclass(frozen=True)
class KeepAll(ChainSolver):
    """Keep everything that backward wants: a plain training step.

    Idea: no checkpoints; the whole chain is the last segment, which is not recomputed.
    Complexity: O(1).
    Reference: none.
    Assumes: nothing.
    Use it: as the baseline.
    """

    name: ClassVar[str] = "keep_all"

    def solve_chain(self, chain: Chain, budget: int | None) -> Solution:
        return of_checkpoints(self.name, chain, (), Status.HEURISTIC, budget)
