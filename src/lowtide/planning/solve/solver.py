"""`Solver`: the base of all solvers, frozen settings objects; all their working state is local to `solve`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from lowtide.errors import InputError
from lowtide.planning.chain import Chain
from lowtide.planning.solve.solution import Solution


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
    def solve(self, problem: Any, budget: int | None = None) -> Solution:
        """A plan for `problem`; with a budget in bytes, one whose peak is within it where the solver finds one.

        Raises:
            InputError: if this solver does not take such a problem.
        """


@dataclass(frozen=True)
class ChainSolver(Solver):
    """A solver of chains."""

    def solve(self, problem: Any, budget: int | None = None) -> Solution:
        if isinstance(problem, Chain):
            return self.solve_chain(problem, budget)
        raise InputError(f"solver {self.name!r} takes a Chain, not {type(problem).__name__}")

    @abstractmethod
    def solve_chain(self, chain: Chain, budget: int | None) -> Solution: ...
