"""The solvers that work on steps themselves, as the registry wants them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from lowtide.errors import InputError
from lowtide.planning.progress import Progress, silent
from lowtide.planning.solve.budget import Ground
from lowtide.planning.solve.deep import deep
from lowtide.planning.solve.exact import exact
from lowtide.planning.solve.frontier import search
from lowtide.planning.solve.solution import Solution, Status, of_lists
from lowtide.planning.solve.solver import Solver
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
        found = search(problem, progress)
        status = Status.LEAST_PEAK if found.peak_bytes <= found.least_bytes else Status.NEAR_LEAST
        return of_lists(self.name, problem, (found.keep, found.runs), status, budget, said=found.status)


@dataclass(frozen=True)
class Deep(Solver):
    """Least peak of a traced step that can be found within a limit on added work, any op run again any number of times.

    Idea: from the cuts of `frontier`, runs are put off until something wants them; then, where memory is highest, what
    waits there is dropped and made again later, the move with most bytes per added work first, until none helps.
    Complexity: up to 20,000 plans are counted, in vectors; seconds for 1,000 ops.
    Reference: our own; single values made again just in time are what Checkmate's and Moccasin's programs decide.
    Assumes: nothing; it is a search and proves its plan only where the peak is at the lower bound of all plans.
    Use it: always, on steps, unless any op may run again only once (`frontier`).

    Attributes:
        max_slowdown: added work allowed, as a fraction of the plain step's FLOPs (seconds if it has costs); None: any.
        max_recompute: how often any op may run again; None: any number of times.
        tries: plans that may be counted.
        seconds: time after which the search ends with the best plan so far; None: no limit. The plan of
            the best cuts comes first, so that there always is one.
    """

    name: ClassVar[str] = "deep"
    max_slowdown: float | None = field(default=0.34, kw_only=True)
    max_recompute: int | None = field(default=None, kw_only=True)
    tries: int = field(default=20_000, kw_only=True)
    seconds: float | None = field(default=100.0, kw_only=True)

    def __post_init__(self) -> None:
        if self.max_slowdown is not None and not self.max_slowdown >= 0:
            raise InputError(f"max_slowdown must be at least 0, or None for no limit, not {self.max_slowdown!r}")
        if self.max_recompute is not None and self.max_recompute < 1:
            raise InputError(f"max_recompute must be at least 1, or None for no limit, not {self.max_recompute!r}")
        if self.tries < 1:
            raise InputError(f"tries must be at least 1, not {self.tries!r}")
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(f"seconds must be more than 0, or None for no limit, not {self.seconds!r}")

    def solve(self, problem: Any, budget: int | None = None, progress: Progress | None = None) -> Solution:
        if not isinstance(problem, Step):
            raise InputError(f"solver {self.name!r} takes a Step, not {type(problem).__name__}")
        found = deep(problem, self.max_slowdown, self.max_recompute, progress, self.tries, self.seconds)
        status = Status.LEAST_OF_ALL if found.peak_bytes <= found.least_bytes else Status.SEARCHED
        stats = {"tries": found.tries}
        return of_lists(self.name, problem, (found.keep, found.runs), status, budget, stats, said=found.status)


@dataclass(frozen=True)
class Budget(Solver):
    """Least added time of a traced step with its peak under a budget; least peak within a limit on added time.

    Idea: rotor's recursion on op-level frontiers, each stretch between cuts with a choice of what it keeps and holds
    (corners of cheapest cuts at rising prices of memory); then single values are given up, kept or exchanged, and
    single runs left out. Prices of memory at every moment give a lower bound on the time of all plans.
    Complexity: O(c^2 r s) for c cuts, r regimes, s slots of memory, in numpy, then some thousand plans are counted:
    about ten seconds for 1,000 ops.
    Reference: Beaumont et al., Optimal checkpointing for heterogeneous chains, 2019 (arXiv 1911.13214), for the
    recursion; the regimes, the bound and the searches are our own.
    Assumes: nothing; a plan is proven to be best only where it meets the bound. A step without costs is planned for
    one device (`lowtide.planning.solve.budget.DEFAULT_DEVICE`).
    Use it: whenever there is a budget, and to trade time for memory.

    Attributes:
        max_slowdown: without a budget, added time allowed, as a fraction of the plain step's.
        tries: plans that may be counted for a budget; None: as many as take some seconds.
    """

    name: ClassVar[str] = "budget"
    max_slowdown: float = field(default=0.34, kw_only=True)
    tries: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not self.max_slowdown >= 0:
            raise InputError(f"max_slowdown must be at least 0, not {self.max_slowdown!r}")

    def solve(self, problem: Any, budget: int | None = None, progress: Progress | None = None) -> Solution:
        if not isinstance(problem, Step):
            raise InputError(f"solver {self.name!r} takes a Step, not {type(problem).__name__}")
        report = progress or silent
        ground = Ground(problem, lambda x: report(0.4 * x))

        def rest(x: float) -> None:
            report(0.4 + 0.6 * x)

        if budget is None:
            found = ground.least_peak(self.max_slowdown, rest)
        else:
            found = ground.solve(budget, rest, self.tries)
        status = Status.SEARCHED if budget is None else Status.LEAST_COST
        stats = {"least_added_s": found.least_s, "read": len(ground.pool)}
        return of_lists(self.name, ground.step, (found.keep, found.runs), status, budget, stats, said=found.status)


@dataclass(frozen=True)
class Exact(Solver):
    """Least peak of a small traced step, proven, if any op runs again a few times at most.

    Idea: a constraint program in which runs hold what they write over intervals, solved by CP-SAT.
    Complexity: exponential; steps of some 30 ops in seconds, of 60 in minutes. Needs OR-tools.
    Reference: Bartan et al. 2023, Moccasin (arXiv:2304.14463), with the peak as the objective.
    Assumes: no op runs twice before the same unpack; beyond `runs`, more runs could still be better.
    Use it: to see how far the other solvers are from the best, or for a small step that is worth it.

    Attributes:
        runs: how often any op may run again.
        max_slowdown: added work allowed, as a fraction of the plain step's FLOPs; None: any.
        seconds: time for the solver; without a proof by then, the best plan so far.
    """

    name: ClassVar[str] = "exact"
    exact: ClassVar[bool] = True
    runs: int = field(default=2, kw_only=True)
    max_slowdown: float | None = field(default=None, kw_only=True)
    seconds: float = field(default=60.0, kw_only=True)

    def __post_init__(self) -> None:
        if self.runs < 1:
            raise InputError(f"runs must be at least 1, not {self.runs!r}")

    def solve(self, problem: Any, budget: int | None = None, progress: Progress | None = None) -> Solution:
        if not isinstance(problem, Step):
            raise InputError(f"solver {self.name!r} takes a Step, not {type(problem).__name__}")
        proof = exact(problem, self.runs, self.max_slowdown, self.seconds)
        found = proof.found
        status = Status.SEARCHED
        if found.peak_bytes <= found.least_bytes:
            status = Status.LEAST_OF_ALL
        elif proof.is_optimal:
            status = Status.LEAST_PEAK
        said = f"least peak with at most {self.runs} runs of any op, proven" if proof.is_optimal else found.status
        return of_lists(self.name, problem, (found.keep, found.runs), status, budget, said=said)
