"""The memory of a step as a picture: layers by what they are for, the step without a plan as a line."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from lowtide.planning.blocks import Kind
from lowtide.planning.step import Phase
from lowtide.report.svg import Scale, area, byte_ticks, line, picture, rectangle, scale, steps, text
from lowtide.units import format_bytes

if TYPE_CHECKING:
    from lowtide.planning.step import Step
    from lowtide.report.layers import Layers

LEFT, RIGHT, TOP, BOTTOM = 74, 14, 30, 34


OPTIMIZER_SHARE = 0.12  # of the width: an optimizer of many small ops would leave no room for the rest


@dataclass(frozen=True)
class Columns:
    """Which moment each column of a picture shows: the highest of its share, so that no peak is lost.

    Attributes:
        shown: one moment per column.
        starts: first moment of each column.
        edges: where each column begins in the picture, and where the last one ends.
        baseline: bytes of the highest moment of the same share without a plan; empty if that is not drawn.
    """

    shown: list[int]
    starts: list[int]
    edges: list[float]
    baseline: list[int]

    def of(self, moment: int) -> int:
        """The column that a moment is in."""
        return max(k for k, start in enumerate(self.starts) if start <= moment)


def columns_of(planned: Layers, baseline: Layers | None, width: int) -> Columns:
    """A column per moment, or per few moments where a picture of that width has no room for more."""
    step = planned.timeline.step
    n, room = step.n_moments, width - LEFT - RIGHT
    before = next((m for m in range(n) if phase_at(step, m) is Phase.OPTIMIZER), n)
    share = min(OPTIMIZER_SHARE, (n - before) / n) if before else 1.0
    starts: list[int] = []
    edges: list[float] = []
    parts = [(0, before, LEFT, LEFT + room * (1 - share)), (before, n, LEFT + room * (1 - share), LEFT + room)]
    for first, end, left, right in parts:
        count = min(end - first, max(1, int(right - left)))
        starts += [first + (end - first) * c // count for c in range(count)]
        edges += [left + (right - left) * c / count for c in range(count)]
    shares = [range(a, b) for a, b in zip(starts, [*starts[1:], n], strict=True)]
    shown = [max(moments, key=planned.total) for moments in shares]
    tops = [max(map(baseline.total, moments)) for moments in shares] if baseline else []
    return Columns(shown, starts, [*edges, float(LEFT + room)], tops)


def phase_at(step: Step, moment: int) -> Phase:
    """The part of the step that a moment belongs to; what autograd asks for, it asks for in backward."""
    what = step.moments[moment]
    return step.ops[what].phase if what >= 0 else Phase.BACKWARD


def css_class(kind: Kind) -> str:
    """`Kind.KEPT -> 'kept'`."""
    return kind.name.lower()


def timeline_svg(
    planned: Layers,
    baseline: Layers | None = None,
    columns: Columns | None = None,
    width: int = 1100,
    height: int = 380,
) -> str:
    """The picture. `baseline` is the step without a plan; `columns` of another picture of the same layers can be
    handed in."""
    step, timeline = planned.timeline.step, planned.timeline
    label = f"Memory over the step: peak {format_bytes(timeline.total_peak_bytes)}"
    if not step.n_moments:
        return picture(width, height, [text(width / 2, height / 2, "an empty step", anchor="middle")], label)
    c = columns or columns_of(planned, baseline, width)
    highest = max(timeline.total_peak_bytes, baseline.timeline.total_peak_bytes if baseline else 0)
    y = scale(0, highest or 1, height - BOTTOM, TOP)
    parts = [*_grid(highest, y, width), *_layers(planned, c, y), *_phases(step, c, height)]
    at = _summit(planned, c, y)
    below = False
    if baseline:
        other = _summit(baseline, c, y)
        below = abs(other[0] - at[0]) < 260 and abs(other[1] - at[1]) < 18  # two names would be in one place
        parts.append(f'<path d="{steps(c.edges, [y(b) for b in c.baseline])}" class="baseline"/>')
        parts.append(
            _mark(other, f"without a plan {format_bytes(baseline.timeline.total_peak_bytes)}", "of-baseline", width)
        )
    parts.append(_mark(at, f"peak {format_bytes(timeline.total_peak_bytes)}", "of-plan", width, below))
    parts.append(f'<line class="cursor" y1="{TOP}" y2="{height - BOTTOM}" x1="0" x2="0"/>')
    return picture(width, height, parts, label, "timeline")


def _grid(highest: int, y: Scale, width: int) -> list[str]:
    parts: list[str] = []
    for size, label in byte_ticks(highest):
        parts.append(line(LEFT, y(size), width - RIGHT, y(size), "grid"))
        parts.append(text(LEFT - 8, y(size) + 4, label, "axis", "end"))
    return parts


def _layers(planned: Layers, c: Columns, y: Scale) -> list[str]:
    parts: list[str] = []
    below = [0] * len(c.shown)
    for kind, levels in planned.of.items():
        top = [b + levels[m] for b, m in zip(below, c.shown, strict=True)]
        if top != below:
            d = area(c.edges, [y(t) for t in top], [y(b) for b in below])
            parts.append(f'<path d="{d}" class="fill {css_class(kind)}"/>')
        below = top
    return parts


def _phases(step: Step, c: Columns, height: int) -> list[str]:
    """A band below the picture. Unpacks within forward belong to it: they are backwards inside forward."""
    parts: list[str] = []
    names = [phase_at(step, m) for m in c.starts]
    last = max((k for k, name in enumerate(names) if name is Phase.FORWARD), default=-1)
    names = [Phase.FORWARD if k <= last else name for k, name in enumerate(names)]
    k = 0
    for name, group in groupby(names):
        start, k = k, k + len(list(group))
        parts.append(rectangle(c.edges[start], height - BOTTOM + 6, c.edges[k] - c.edges[start] - 1, 20, "phase"))
        if c.edges[k] - c.edges[start] > 8 * len(name.value):
            middle = (c.edges[start] + c.edges[k]) / 2
            parts.append(text(middle, height - BOTTOM + 20, name.value, "phase-name", "middle"))
        if start:
            parts.append(line(c.edges[start], TOP, c.edges[start], height - BOTTOM, "divider"))
    return parts


def _summit(of: Layers, c: Columns, y: Scale) -> tuple[float, float]:
    """Where the highest point is."""
    column = c.of(of.timeline.peak_moment)
    return (c.edges[column] + c.edges[column + 1]) / 2, y(of.timeline.total_peak_bytes)


def _mark(at: tuple[float, float], name: str, classes: str, width: int, below: bool = False) -> str:
    """A dot and a name on the side where there is room."""
    x, y = at
    anchor, shift = ("start", 10) if x < width / 2 else ("end", -10)
    dot = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="mark {classes}"/>'
    return dot + text(x + shift, y + 18 if below else y - 7, name, f"mark-name {classes}", anchor)
