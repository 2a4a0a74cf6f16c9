"""Feng and Huang's optimal gradient checkpoints, on chains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lowtide.planning.chain import Chain
from lowtide.planning.solve.cubic import least_sum_plus_worst
from lowtide.planning.solve.solution import Solution, Status, of_checkpoints
from lowtide.planning.solve.solver import ChainSolver


@dataclass(frozen=True)
class FengHuang(ChainSolver):
    """Least "all checkpoints plus the largest segment": optimal gradient checkpoint search (OGC).

    Idea: a segment costs the bytes that its stages store. For every possible largest segment, the cheapest checkpoints
    whose segments are no larger are a shortest path with vertex costs. Their sum plus that segment is the peak.
    Complexity: O(n^2) caps times O(n) (see `cubic`; O(n^2) each in the paper).
    Reference: Feng and Huang, Optimal Gradient Checkpoint Search for Arbitrary Computation Graphs, CVPR 2021 (arXiv
    1808.00079), algorithm 1.
    Assumes: checkpoints stay to the end, the backward of a stage costs nothing beyond what is stored. The peak that the
    solution reports counts both as they are; `stats["claimed_peak_bytes"]` is its own objective.
    Use it: to compare with.
    """

    name: ClassVar[str] = "feng_huang"
    exact: ClassVar[bool] = True

    def solve_chain(self, chain: Chain, budget: int | None) -> Solution:
        levels = [h - t for h, t in zip(chain.levels, chain.t, strict=True)]
        checkpoints, total, caps = least_sum_plus_worst(chain.a, chain.stored, levels)
        stats = {"claimed_peak_bytes": total, "caps": caps}
        return of_checkpoints(self.name, chain, checkpoints, Status.LEAST_CLAIM, budget, stats)
