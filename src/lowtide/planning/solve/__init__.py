"""`solve` and the registry of solvers: one file per algorithm, one `Solution` for all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from time import perf_counter
from typing import Any

from lowtide.errors import InputError
from lowtide.planning.chain import Chain
from lowtide.planning.graph import Graph
from lowtide.planning.plan import Plan
from lowtide.planning.progress import Progress
from lowtide.planning.solve.bptt import Bptt
from lowtide.planning.solve.cubic import Cubic
from lowtide.planning.solve.every_block import EveryBlock
from lowtide.planning.solve.feng_huang import FengHuang
from lowtide.planning.solve.greedy import Greedy
from lowtide.planning.solve.keep_all import KeepAll
from lowtide.planning.solve.linear import Linear
from lowtide.planning.solve.lower_sets import LowerSets
from lowtide.planning.solve.on_steps import Budget, Deep, Exact, Frontier
from lowtide.planning.solve.quadratic import Quadratic
from lowtide.planning.solve.revolve import Revolve
from lowtide.planning.solve.rotor import Rotor
from lowtide.planning.solve.solution import Solution, Status, of_checkpoints, of_lists, of_vertices
from lowtide.planning.solve.solver import ChainSolver, Solver
from lowtide.planning.solve.sqrt import Sqrt
from lowtide.planning.step import Step
from lowtide.units import parse_bytes

SOLVERS: dict[str, Solver] = {
    s.name: s
    for s in (
        Deep(),
        Budget(),
        Frontier(),
        Exact(),
        Linear(),
        Quadratic(),
        Cubic(),
        Rotor(),
        FengHuang(),
        LowerSets(),
        Sqrt(),
        Greedy(),
        Revolve(),
        Bptt(),
        EveryBlock(),
        KeepAll(),
    )
}

__all__ = ["SOLVERS", "ChainSolver", "Solution", "Solver", "Status", "pick", "solve", "solver_named"]


def solve(
    problem: Chain | Step | Graph,
    solver: str | Solver | Plan | Iterable[int] = "auto",
    budget: int | str | None = None,
    progress: Progress | None = None,
) -> Solution:
    """A plan for `problem`, judged.

    Args:
        problem: a `Chain`, or a traced `Step`, which is reduced to a chain for solvers of chains; or a `Graph`, which
            `feng_huang` and `lower_sets` take.
        solver: a name from `SOLVERS`, `'auto'` (see `pick`), a solver object with settings of its own
            (`Rotor(slots=2000)`), or what is ready and only to be judged: a set of checkpoints for a chain, of
            kept vertices for a graph, a `Plan` for a step.
        budget: peak allowed, in bytes or as text (`'10GiB'`): least recomputation within it where the solver can do
            that, else least peak; `Solution.status` says whether it fits.
        progress: called with a fraction in [0, 1] now and then by solvers that can take long.

    Raises:
        InputError: if the solver is unknown or does not take such a problem, or checkpoints or budget make no sense.
        PlanError: if a given plan breaks a rule.

    Example:
        >>> solve(Chain.from_arrays(a=[1] * 10)).checkpoints
        (3, 6, 8)
    """
    limit = None if budget is None else parse_bytes(budget)
    if not isinstance(solver, (str, Solver)):
        return _given(problem, solver, limit)
    chosen = solver_named(pick(problem, limit) if solver == "auto" else solver) if isinstance(solver, str) else solver
    start = perf_counter()
    solution = chosen.solve(problem, limit, progress)
    return replace(solution, stats={**solution.stats, "seconds": perf_counter() - start})


def pick(problem: Any, budget: int | None = None) -> str:
    """The name of the solver that `'auto'` takes for `problem`: the best for its kind, `'linear'` for a chain,
    `'deep'` for a step, `'budget'` if it is to fit one, and `'lower_sets'` for a graph.

    Raises:
        InputError: if it is something else.
    """
    if isinstance(problem, Chain):
        return "linear"
    if isinstance(problem, Step):
        return "deep" if budget is None else "budget"
    if isinstance(problem, Graph):
        return "lower_sets"
    raise InputError(f"no solver takes {type(problem).__name__}: give a Chain, a Step or a Graph")


def _given(problem: Chain | Step | Graph, ready: Plan | Iterable[int], budget: int | None) -> Solution:
    if isinstance(problem, Chain) and not isinstance(ready, Plan):
        return of_checkpoints("given", problem, ready, Status.GIVEN, budget)
    if isinstance(problem, Graph) and not isinstance(ready, Plan):
        return of_vertices("given", problem, ready, Status.GIVEN, budget)
    if isinstance(problem, Step) and isinstance(ready, Plan):
        return of_lists("given", problem, (ready.keep, ready.runs), Status.GIVEN, budget)
    wanted = "a Plan for a Step" if isinstance(problem, Step) else f"checkpoints for a {type(problem).__name__}"
    raise InputError(f"{type(ready).__name__} is not a solver, nor {wanted}: choose from auto, {', '.join(SOLVERS)}")


def solver_named(name: str) -> Solver:
    """The registered solver of that name.

    Raises:
        InputError: if there is none, with the names there are.
    """
    if name in SOLVERS:
        return SOLVERS[name]
    close = get_close_matches(name, SOLVERS, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise InputError(f"there is no solver {name!r}: {hint}choose from auto, {', '.join(SOLVERS)}")
