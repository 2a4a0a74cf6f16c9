"""tradeoff: the front of peak against added time, from keeping all to the least peak, with a plan at every point."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lowtide.errors import InputError
from lowtide.planning.judge import judge
from lowtide.planning.plan import Plan
from lowtide.planning.progress import Progress, silent
from lowtide.planning.solve.budget import Found, Ground
from lowtide.planning.step import Step
from lowtide.units import format_bytes, format_percent, format_seconds

FORMAT = 1


@dataclass(frozen=True, repr=False)
class Curve:
    """Plans from the quickest to the smallest: peaks fall and added times rise from point to point.

    Attributes:
        step: with the costs that the plans were made for.
        points: what was found; the first is the step without recomputation.
    """

    step: Step
    points: tuple[Found, ...]

    def under(self, budget: int) -> Found:
        """The quickest point whose peak is at most `budget` bytes above the start of the step.

        Raises:
            InputError: if none is.
        """
        for p in self.points:
            if p.peak_bytes <= budget:
                return p
        raise InputError(
            f"no point of the curve is within {format_bytes(budget)}: the least peak is "
            f"{format_bytes(self.points[-1].peak_bytes)}"
        )

    def plan(self, point: Found) -> Plan:
        """The plan that a point is, checked and simulated."""
        return judge(self.step, point.keep, point.runs, "budget", point.status)

    def to_json(self) -> dict[str, Any]:
        """The figures, without the plans."""
        return {
            "format": FORMAT,
            "kind": "lowtide.curve",
            "digest": self.step.digest,
            "costs": self.step.meta.get("costs", ""),
            "step_s": self.step.total_seconds,
            "standing_bytes": self.step.standing_bytes,
            "points": [
                {
                    "peak_bytes": p.peak_bytes,
                    "total_peak_bytes": p.peak_bytes + self.step.standing_bytes,
                    "added_s": p.added_s,
                    "slowdown": p.slowdown,
                    "least_s": p.least_s,
                    "recompute_flops": flops_of(self.step, p),
                }
                for p in self.points
            ],
        }

    def __repr__(self) -> str:
        first = self.points[0].peak_bytes or 1
        rows = [["peak of the step", "", "everything in", "added time", "", "any plan adds", "added FLOPs"]]
        total_s, flops = self.step.total_seconds or 1.0, self.step.total_flops or 1
        for p in self.points:
            rows.append(
                [
                    format_bytes(p.peak_bytes),
                    format_percent(p.peak_bytes / first),
                    format_bytes(p.peak_bytes + self.step.standing_bytes),
                    format_seconds(p.added_s),
                    format_percent(p.slowdown),
                    f">= {format_percent(p.least_s / total_s)}",
                    format_percent(flops_of(self.step, p) / flops),
                ]
            )
        width = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        lines = ["  ".join(cell.rjust(w) for cell, w in zip(row, width, strict=True)) for row in rows]
        costs = self.step.meta.get("costs", "unknown")
        return "\n".join([f"Peak against added time, {len(self.points)} plans; costs: {costs}", "", *lines])


def flops_of(step: Step, found: Found) -> int:
    """FLOPs that a plan adds."""
    return sum(step.ops[o].flops for ops in found.runs.values() for o in ops)


def tradeoff(
    step: Step,
    points: int = 20,
    max_slowdown: float = 0.5,
    progress: Progress | None = None,
    ground: Ground | None = None,
) -> Curve:
    """Plans for some `points` budgets, evenly spaced from the peak without a plan to the least one.

    Each starts from what was found for the smaller ones, so that added time never rises with the budget. It takes two
    to three times as long as a plan for one budget.

    Args:
        step: with seconds, or for the default device.
        points: at least 2; plans that others are better than in both are left out, so that there can be fewer.
        max_slowdown: added time at the smallest end, as a fraction of the step's.
        progress: called with a fraction in [0, 1].
        ground: of the same step, if there is one already.

    Raises:
        InputError: if there are too few points, or the limit is negative.
    """
    if points < 2:
        raise InputError(f"points={points!r}: a curve has at least 2")
    if not max_slowdown >= 0:
        raise InputError(f"max_slowdown={max_slowdown!r}: it must be at least 0")
    report = progress or silent
    base = ground or Ground(step, lambda x: report(0.3 * x))
    least = base.least_peak(max_slowdown)
    found = [least]
    low, high = least.peak_bytes, base.baseline_bytes
    for k in range(1, points):
        report(0.3 + 0.7 * k / points)
        budget = low + (high - low) * k // (points - 1)
        found.append(base.solve(budget, tries=max(60, base.tries // 8)))
    front: list[Found] = []
    for p in sorted(found, key=lambda p: (p.added_s, p.peak_bytes)):
        if not front or p.peak_bytes < front[-1].peak_bytes:
            front.append(replace(p, budget=None))
    report(1.0)
    return Curve(base.step, tuple(front))
