"""`Solver`: the base of all solvers, frozen settings objects; all their working state is local to `solve`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

from lowtide.errors import InputError
from lowtide.planning.chain import Chain
from lowtide.planning.progress import Progress
from lowtide.planning.reduce import Grouping, lift, reduce
from lowtide.planning.simulate import simulate
from lowtide.planning.solve.solution import Solution, Status, of_lists
from lowtide.planning.step import Step


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
        checkpoints = found.checkpoints
        if budget is None and not found.schedule:
            tied = self.tied(chain, checkpoints)
            checkpoints = tied[0] if len(tied) == 1 else min(tied, key=lambda c: _cost_on_step(problem, chain, c))
        lists = lift(problem, chain, found.schedule or checkpoints)
        stats = {**found.stats, "stages": chain.n, "chain_peak_bytes": found.peak_bytes}
        return of_lists(self.name, problem, lists, Status.ON_CHAIN, budget, stats, checkpoints)

    def tied(self, chain: Chain, found: tuple[int, ...]) -> list[tuple[int, ...]]:
        """`found`, and sets that are as good for this solver: on a step the best there is taken."""
        return [found]

    @abstractmethod
    def solve_chain(self, chain: Chain, budget: int | None) -> Solution:
        """A plan for `chain`."""


def _cost_on_step(step: Step, chain: Chain, checkpoints: tuple[int, ...]) -> tuple[int, int, int]:
    """What the checkpoints cost once they are a plan of the step: peak, then recomputation, then bytes kept."""
    timeline = simulate(step, lift(step, chain, checkpoints))
    return timeline.peak_bytes, timeline.recompute_flops, sum(chain.a[c] for c in checkpoints)
