"""`lowtide.plan`: from a model or a step to a plan, in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from torch import Tensor, nn

from lowtide.acting.available import available_bytes
from lowtide.acting.cost import device_at_hand, measured
from lowtide.acting.trace import trace
from lowtide.errors import InputError
from lowtide.planning.allowance import allowance, is_auto
from lowtide.planning.bound import bound
from lowtide.planning.compress import compressed, gain_bytes
from lowtide.planning.cost import roofline
from lowtide.planning.holding import holding_bound
from lowtide.planning.plan import Plan
from lowtide.planning.simulate import simulate
from lowtide.planning.solve import solve
from lowtide.planning.solve.least import least
from lowtide.planning.solve.on_steps import Deep
from lowtide.planning.step import Step

# Codes are tried, which takes as long again, if they lower the bound or make saved values smaller by this part of the
# peak.
_LEAST_GAIN = 0.1
_LEAST_GAIN_UNDER_BUDGET = 0.01  # where most is kept
_LEAST_ROOM = 0.01  # of the peak, between the plan without codes and what no plan with codes can be below

# Added work that is worth it unless one says otherwise, as a fraction of the plain step: forward is a third of it.
ONE_MORE_FORWARD = 0.34


def plan(
    model_or_step: nn.Module | Step,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    budget: int | str | None = None,
    budget_of: str = "total",
    max_slowdown: float | None = ONE_MORE_FORWARD,
    max_recompute: int | None = None,
    device: str | None = None,
    solver: Any = "auto",
    optimizer: Any = None,
    compress: bool = True,
    progress: Callable[[str, float], None] | None = None,
) -> Plan:
    """A plan for one training step: least peak memory, or least added time within a budget.

    Args:
        model_or_step: a module, traced here with the other arguments as `lowtide.trace` takes them, or a traced `Step`.
        budget: what the device has to give: bytes, `'10GiB'`, a share of the peak without a plan (`'60%'`), or `'auto'`
            for what is free now less a margin of 8 %. The plan of least added time whose peak is within it.
        budget_of: `'total'`: everything counts, parameters and optimizer state, too; `'step'`: above the step's start.
        max_slowdown: the plan of least peak that adds at most this fraction of the plain step: of its time, or by
            default, with no device in sight, of its FLOPs: one more forward. Among plans of equal peak the one that
            adds least. None: whatever work it takes.
        max_recompute: how often any op may run again at most; 1 is the class of the thesis.
        device: what time is reckoned for: a name from `lowtide.planning.cost.DEVICES`, or `'measured'` to measure each
            kind of op here first. By default the step's own costs if it has some, else the CUDA device of this
            machine, or an A100.
        solver: a name from `lowtide solvers`, or a solver object.
        compress: hold codes in the place of saved tensors of which backward needs less (`planning.compress`), where
            that makes the plan better: signs, dropout masks, indices of pools. Gradients are the same to the bit. For
            solver='auto'; for another solver give the step `lowtide.planning.compress.compressed(step)`.
        progress: called with a word and a fraction in [0, 1].

    Returns:
        A plan that was checked and simulated, never with a higher peak than no plan.

    Raises:
        InputError, TraceError: if the step cannot be traced, the solver or the device is unknown, or nothing fits the
            budget; then the message has the least peak and what would help.
    """
    limits_work = max_slowdown != ONE_MORE_FORWARD or max_recompute is not None
    if limits_work and budget is not None:
        raise InputError(
            f"budget={budget!r}, max_slowdown={max_slowdown!r}, max_recompute={max_recompute!r}: limit memory or work"
        )
    if limits_work and solver != "auto":
        raise InputError(
            f"max_slowdown={max_slowdown!r}, max_recompute={max_recompute!r} are for solver='auto', not {solver!r}: "
            "give such settings to the solver object"
        )
    limits_time = max_slowdown is not None and max_slowdown != ONE_MORE_FORWARD
    timed = budget is not None or limits_time or device is not None
    step = costed_step(model_or_step, args, kwargs, loss, optimizer, device, timed, progress)
    limit = None
    if budget is not None:
        available = available_bytes(step.meta.get("device", "cpu")) if is_auto(budget) else None
        limit = allowance(step, simulate(step).peak_bytes, budget, budget_of, available)
    report = progress or (lambda *_: None)
    report("plan", 0.0)
    coded = _coded(step, limit is not None) if compress and solver == "auto" else None

    def solved(form: Step, begin: float, end: float) -> Plan | None:
        def planning(x: float) -> None:
            report("plan", begin + (end - begin) * x)

        if solver == "auto" and limit is None and max_recompute is None and max_slowdown is not None:
            return least(form, max_slowdown, planning).plan
        if limits_work:
            settings = Deep(max_slowdown=max_slowdown, max_recompute=max_recompute)
            return solve(form, settings, progress=planning).plan
        return solve(form, solver, limit, progress=planning).plan

    best = solved(step, 0.0, 0.5 if coded is not None else 1.0)
    if best is None:
        raise InputError(f"solver {solver!r} makes no plan for a step")
    if coded is not None and _may_help(coded, best, limit):
        other = solved(coded, 0.5, 1.0)
        most = max_slowdown if limits_time and max_slowdown is not None else inf  # codes take some time
        if other is not None and other.slowdown <= most * (1 + 1e-9) and _worth(other, limit) < _worth(best, limit):
            best = other
    if limit is not None and best.peak_bytes > limit:
        raise InputError(f"no plan for budget={budget!r}: {best.status}")
    report("plan", 1.0)
    return best


def _coded(step: Step, has_budget: bool) -> Step | None:
    """The step with codes, or None if they make no difference worth the time of planning for it."""
    small = compressed(step)
    part = _LEAST_GAIN_UNDER_BUDGET if has_budget else _LEAST_GAIN
    matters = gain_bytes(small) >= part * simulate(step).peak_bytes or bound(small).bytes < bound(step).bytes
    return small if small.codes and matters else None


def _may_help(coded: Step, best: Plan, limit: int | None) -> bool:
    """Whether a plan with codes may be better than the best one without: there is added work to save within a budget,
    or room below the peak."""
    if limit is not None and best.peak_bytes <= limit:
        return best.recompute_ops > 0
    return holding_bound(coded, best.peak_bytes).bytes < (1 - _LEAST_ROOM) * best.peak_bytes


def _worth(plan: Plan, limit: int | None) -> tuple[float, ...]:
    """Less is better; where all is equal, without codes."""
    added = plan.slowdown
    order = (plan.peak_bytes, added) if limit is None else (max(0, plan.peak_bytes - limit), added, plan.peak_bytes)
    return (*order, len(plan.step.codes))


def costed_step(
    model_or_step: nn.Module | Step,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    loss: Callable[[Any], Tensor] | None,
    optimizer: Any,
    device: str | None,
    timed: bool,
    progress: Callable[[str, float], None] | None,
) -> Step:
    """The step to plan, with costs if time matters."""
    if device == "measured":
        if isinstance(model_or_step, Step):
            raise InputError("device='measured' needs the model, to see what its ops are called with: not a Step")
        return measured(model_or_step, args, kwargs, loss=loss, optimizer=optimizer, progress=progress)
    if isinstance(model_or_step, Step):
        step = model_or_step
    else:
        step = trace(model_or_step, args, kwargs, loss=loss, optimizer=optimizer, progress=progress)
    if device is not None:
        return roofline(step, device)
    return roofline(step, device_at_hand()) if timed and not step.seconds else step
