"""`lowtide.plan`: from a model or a step to a plan, in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from lowtide.acting.trace import trace
from lowtide.errors import InputError
from lowtide.planning.plan import Plan
from lowtide.planning.solve import solve
from lowtide.planning.step import Step


def refuse_budget(budget: Any) -> None:
    """Plans under a budget are not built yet.

    Raises:
        InputError: if a budget is given.
    """
    if budget is not None:
        raise InputError(f"budget={budget!r}: plans under a budget are not there yet; leave it out for the least peak")


def plan(
    model_or_step: nn.Module | Step,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    budget: Any = None,
    solver: Any = "auto",
    optimizer: Any = None,
    progress: Callable[[str, float], None] | None = None,
) -> Plan:
    """The plan with the least peak memory for one training step.

    Args:
        model_or_step: a module, traced here with the other arguments as `lowtide.trace` takes them, or a traced `Step`.
        budget: not there yet.
        solver: a name from `lowtide solvers`, or a solver object.
        progress: called with a word and a fraction in [0, 1].

    Returns:
        A plan that was checked and simulated, never with a higher peak than no plan.

    Raises:
        InputError, TraceError: if the step cannot be traced or the solver is unknown.
    """
    refuse_budget(budget)
    if isinstance(model_or_step, Step):
        step = model_or_step
    else:
        step = trace(model_or_step, args, kwargs, loss=loss, optimizer=optimizer, progress=progress)
    report = progress or (lambda *_: None)
    report("plan", 0.0)
    solution = solve(step, solver=solver, progress=lambda f: report("plan", f))
    if solution.plan is None:
        raise InputError(f"solver {solver!r} makes no plan for a step")
    report("plan", 1.0)
    return solution.plan
