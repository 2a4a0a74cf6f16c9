"""The solver that works on steps themselves, as the registry wants it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from lowtide.errors import InputError
from lowtide.planning.solve.frontier import frontier
from lowtide.planning.solve.solution import Solution, Status, of_lists
from lowtide.planning.solve.solver import Progress, Solver
from lowtide.planning.step import Step


@dataclass(frozen=True)
class Frontier(Solver):
    """Least peak of a traced step with at most one recomputation of any op: the thesis' objective on op frontiers.

    Idea: `V(i) = min( M(i,n), min_{i<j<n} max( M(i,j), c(i,j) + V(j) ) )` over all positions between forward ops, where
    a cut keeps its whole frontier and c counts every kept value once.
    Complexity: O(n^2) in numpy; 1,000 ops in seconds.
    Reference: the revised objective of N. Wang, master's thesis, NTU 2023, carried over to frontiers.
    Assumes: cuts keep whole frontiers, segments are recomputed whole and once.
    Use it: always, on steps; the solvers of chains can be had on a step, too, which is reduced for them.
    """

    name: ClassVar[str] = "frontier"
    exact: ClassVar[bool] = True

    def solve(self, problem: Any, budget: int | None = None, progress: Progress | None = None) -> Solution:
        if not isinstance(problem, Step):
            raise InputError(f"solver {self.name!r} takes a Step, not {type(problem).__name__}")
        return of_lists(self.name, problem, frontier(problem, progress), Status.LEAST_PEAK, budget)
