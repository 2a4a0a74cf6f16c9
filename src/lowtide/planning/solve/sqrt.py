"""Equal segments, about sqrt(n) of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import ClassVar

from lowtide.errors import InputError
from lowtide.planning.chain import Chain
from lowtide.planning.solve.solution import Solution, Status, of_checkpoints
from lowtide.planning.solve.solver import ChainSolver


@dataclass(frozen=True)
class Sqrt(ChainSolver):
    """sqrt(n) segments of equal length: with equal stages a peak of 2 sqrt(n) activations for one more forward.

    Attributes:
        segments: how many; the nearest integer to sqrt(n) if None.

    Idea: k segments of n/k stages store k checkpoints and, one segment at a time, n/k stages; k = sqrt(n) balances
    both.
    Complexity: O(n).
    Reference: Chen, Xu, Zhang, Guestrin, Training Deep Nets with Sublinear Memory Cost, 2016 (arXiv 1604.06174).
    Assumes: stages of equal size; it looks at no sizes at all.
    Use it: to compare with; `linear` is never worse.
    """

    name: ClassVar[str] = "sqrt"
    segments: int | None = None

    def __post_init__(self) -> None:
        if self.segments is not None and self.segments < 1:
            raise InputError(f"segments is {self.segments}: it must be at least 1")

    def solve_chain(self, chain: Chain, budget: int | None) -> Solution:
        n = chain.n
        count = min(self.segments or _rounded_sqrt(n), n)
        checkpoints = {q * n // count for q in range(1, count)}
        return of_checkpoints(self.name, chain, checkpoints, Status.HEURISTIC, budget)


def _rounded_sqrt(n: int) -> int:
    root = isqrt(n)
    return root if n - root * root <= root else root + 1
