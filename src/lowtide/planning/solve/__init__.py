"""`solve` and the registry of solvers: one file per algorithm, one `Solution` for all."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from time import perf_counter
from typing import Any

from lowtide.errors import InputError
from lowtide.planning.chain import Chain
from lowtide.planning.solve.bptt import Bptt
from lowtide.planning.solve.cubic import Cubic
from lowtide.planning.solve.every_block import EveryBlock
from lowtide.planning.solve.feng_huang import FengHuang
from lowtide.planning.solve.greedy import Greedy
from lowtide.planning.solve.keep_all import KeepAll
from lowtide.planning.solve.linear import Linear
from lowtide.planning.solve.quadratic import Quadratic
from lowtide.planning.solve.revolve import Revolve
from lowtide.planning.solve.rotor import Rotor
from lowtide.planning.solve.solution import Solution, Status, of_checkpoints
from lowtide.planning.solve.solver import ChainSolver, Solver
from lowtide.planning.solve.sqrt import Sqrt
from lowtide.units import parse_bytes

SOLVERS: dict[str, Solver] = {
    s.name: s
    for s in (
        Linear(),
        Quadratic(),
        Cubic(),
        Rotor(),
        FengHuang(),
        Sqrt(),
        Greedy(),
        Revolve(),
        Bptt(),
        EveryBlock(),
        KeepAll(),
    )
}

__all__ = ["SOLVERS", "ChainSolver", "Solution", "Solver", "Status", "pick", "solve", "solver_named"]


def solve(problem: Chain, solver: str | Solver | Iterable[int] = "auto", budget: int | str | None = None) -> Solution:
    """A plan for `problem`, judged.

    Args:
        problem: a `Chain`.
        solver: a name from `SOLVERS`, `'auto'` (see `pick`), a solver object with settings of its own
            (`Rotor(slots=2000)`), or a ready set of checkpoints, which is judged as it is.
        budget: peak allowed, in bytes or as text (`'10GiB'`): least recomputation within it where the solver can do
            that, else least peak; `Solution.status` says whether it fits.

    Raises:
        InputError: if the solver is unknown or does not take such a problem, or checkpoints or budget make no sense.

    Example:
        >>> solve(Chain.from_arrays(a=[1] * 10)).checkpoints
        (3, 6)
    """
    limit = None if budget is None else parse_bytes(budget)
    if not isinstance(solver, (str, Solver)):
        return of_checkpoints("given", problem, solver, Status.GIVEN, limit)
    chosen = solver_named(pick(problem) if solver == "auto" else solver) if isinstance(solver, str) else solver
    start = perf_counter()
    solution = chosen.solve(problem, limit)
    stats = {**solution.stats, "seconds": perf_counter() - start}
    return _with_stats(solution, stats)


def pick(problem: Any) -> str:
    """The name of the solver that `'auto'` takes for `problem`: `'linear'` for a chain, which it solves exactly."""
    if isinstance(problem, Chain):
        return "linear"
    raise InputError(f"no solver takes {type(problem).__name__}: give a Chain or a Step")


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


def _with_stats(solution: Solution, stats: dict[str, float]) -> Solution:
    from dataclasses import replace

    return replace(solution, stats=stats)
