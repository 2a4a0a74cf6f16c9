"""judge: a solver's lists -> `Plan`, with figures that the solver has no say in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lowtide.errors import PlanError
from lowtide.planning.check import check
from lowtide.planning.compress import uncompressed
from lowtide.planning.holding import holding_bound
from lowtide.planning.plan import Plan
from lowtide.planning.simulate import simulate
from lowtide.planning.step import Step


def judge(step: Step, keep: Iterable[int], runs: Mapping[int, tuple[int, ...]], solver: str, status: str) -> Plan:
    """Check and simulate two lists, and make a plan of them.

    Raises:
        PlanError: if the lists break a rule; the message is the first violation.
    """
    kept = frozenset(keep)
    lists = {m: tuple(ops) for m, ops in sorted(runs.items()) if ops}
    violations = check(step, kept, lists)
    if violations:
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        raise PlanError(f"this is not a plan for the step: {violations[0].message}{more}")
    timeline = simulate(step, (kept, lists))
    floor = holding_bound(step, timeline.peak_bytes)
    return Plan(
        step=step,
        keep=kept,
        runs=lists,
        solver=solver,
        status=status,
        peak_bytes=timeline.peak_bytes,
        baseline_peak_bytes=simulate(uncompressed(step)).peak_bytes,
        total_peak_bytes=timeline.total_peak_bytes,
        lower_bound_bytes=floor.bytes,
        bound_op=floor.describe(step),
        recompute_flops=timeline.recompute_flops,
        recompute_ops=timeline.recompute_ops,
    )
