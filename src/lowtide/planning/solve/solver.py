"""`Solver`: the base of all solvers, frozen settings objects; all their working state is local to `solve`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from lowtide.errors import InputError
from lowtide.planning.chain import Chain
from lowtide.planning.reduce import Grouping, lift, reduce
from lowtide.planning.solve.solution import Solution, Status, of_lists
from lowtide.planning.step import Step

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Solver(ABC):
    """What the registry holds.

    Attributes:
        name: its key in the registry.
        exact: it proves its plan to be the best of its class.
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = False

    @property
    def summary(self) -> str:
        """One line for lists of solvers: the first line of the class's docstring."""
        return (type(self).__doc__ or "").strip().splitlines()[0]

    @abstractmethod
    def solve(self, problem: Any, budget: int | None = None, progress: Progress | None = None) -> Solution:
        """A plan for `problem`; with a budget in bytes, one whose peak is within it where the solver finds one.
        `progress` is called with a fraction in [0, 1] now and then by solvers that can take long.

        Raises:
            InputError: if this solver does not take such a problem.
        """


@dataclass(frozen=True)
class ChainSolver(Solver):
    """A solver of chains. A step is reduced to one for it, and its plan lifted.

    Attributes:
        granularity: of the reduction, as for `reduce`.
    """

    granularity: str | Grouping = field(default="module", kw_only=True)

    def solve(self, problem: Any, budget: int | None = None, progress: Progress | None = None) -> Solution:
        if isinstance(problem, Chain):
            return self.solve_chain(problem, budget)
        if not isinstance(problem, Step):
            raise InputError(f"solver {self.name!r} takes a Chain or a Step, not {type(problem).__name__}")
        chain = reduce(problem, self.granularity)
        found = self.solve_chain(chain, budget)
        lists = lift(problem, chain, found.schedule or found.checkpoints)
        stats = {**found.stats, "stages": chain.n, "chain_peak_bytes": found.peak_bytes}
        return of_lists(self.name, problem, lists, Status.ON_CHAIN, budget, stats, found.checkpoints)

    @abstractmethod
    def solve_chain(self, chain: Chain, budget: int | None) -> Solution:
        """A plan for `chain`."""
