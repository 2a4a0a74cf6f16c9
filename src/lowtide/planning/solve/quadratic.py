"""Revised objective in O(n^2): the dynamic program of the thesis, chapter 4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lowtide.planning.chain import Chain
from lowtide.planning.solve.linear import tied_for_peak
from lowtide.planning.solve.solution import Solution, Status, of_checkpoints
from lowtide.planning.solve.solver import ChainSolver


@dataclass(frozen=True)
class Quadratic(ChainSolver):
    """Least peak over all checkpoint sets by the plain dynamic program, in O(n^2).

    Idea: `V(i) = a_i + min( M(i,n), min_{i<j<n} max( M(i,j), V(j) ) )`, from the last stage down; V(0) is the answer.
    For one i all M(i,j) are a running maximum of levels less P_i (`Chain.levels`), one numpy call.

    Complexity: O(n^2) time, O(n) memory; 20,000 stages in a few seconds.
    Reference: N. Wang, master's thesis, NTU 2023, chapter 4 (its recurrence is reconstructed).
    Assumes: as `linear`.
    Use it: to check `linear`; it has no deque to get wrong.
    """

    name: ClassVar[str] = "quadratic"
    exact: ClassVar[bool] = True

    def solve_chain(self, chain: Chain, budget: int | None) -> Solution:
        n = chain.n
        stored, levels = np.array(chain.stored, dtype=np.int64), np.array(chain.levels, dtype=np.int64)
        value = np.full(n + 1, -1, dtype=np.int64)  # V(0..n); V(n) is below everything
        following = [0] * n
        for i in range(n - 1, -1, -1):
            segment = np.maximum.accumulate(levels[i:]) - stored[i]  # M(i, i+1..n)
            worst = np.maximum(segment, value[i + 1 :])
            best = int(worst.argmin())
            value[i] = chain.a[i] + worst[best]
            following[i] = i + 1 + best
        checkpoints: list[int] = []
        c = following[0]
        while c < n:
            checkpoints.append(c)
            c = following[c]
        stats = {"claimed_peak_bytes": int(value[0])}
        return of_checkpoints(self.name, chain, checkpoints, Status.LEAST_PEAK, budget, stats)

    def tied(self, chain: Chain, found: tuple[int, ...]) -> list[tuple[int, ...]]:
        return tied_for_peak(chain, found)
