"""A checkpoint at every stage: what people do by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lowtide.planning.chain import Chain
from lowtide.planning.solve.solution import Solution, Status, of_checkpoints
from lowtide.planning.solve.solver import ChainSolver


@dataclass(frozen=True)
class EveryBlock(ChainSolver):
    """Keep the output of every stage and recompute what is inside: `torch.utils.checkpoint` around each block.

    Idea: checkpoints 1..n-1. It helps where stages are blocks that save much more than they put out.
    Complexity: O(n).
    Reference: the common use of `torch.utils.checkpoint`.
    Assumes: nothing.
    Use it: as the second baseline.
    """

    name: ClassVar[str] = "every_block"

    def solve_chain(self, chain: Chain, budget: int | None) -> Solution:
        return of_checkpoints(self.name, chain, range(1, chain.n), Status.HEURISTIC, budget)
