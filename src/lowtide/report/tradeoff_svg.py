"""Peak against added time as a picture, with the plan on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from lowtide.errors import InputError
from lowtide.report.svg import byte_ticks, line, picture, scale, share_ticks, text
from lowtide.units import format_bytes, format_percent

LEFT, RIGHT, TOP, BOTTOM = 60, 20, 16, 44


@dataclass(frozen=True, slots=True)
class Point:
    """A plan: its peak with everything in, and added time as a fraction of the step's."""

    total_peak_bytes: int
    slowdown: float


@dataclass(frozen=True)
class Points:
    """A curve without its plans. `digest` is that of its step, `costs` says where times are from."""

    digest: str
    costs: str
    points: tuple[Point, ...]


def points_of(data: Any) -> Points:
    """What `lowtide curve --json` prints.

    Raises:
        InputError: if `data` is something else.
    """
    if not isinstance(data, dict) or cast(dict[str, Any], data).get("kind") != "lowtide.curve":
        raise InputError("this is not a curve: make one with lowtide curve MODEL --json")
    fields = cast(dict[str, Any], data)
    try:
        points = tuple(Point(int(p["total_peak_bytes"]), float(p["slowdown"])) for p in fields["points"])
        return Points(str(fields["digest"]), str(fields["costs"]), points)
    except (KeyError, TypeError, ValueError) as e:
        raise InputError(f"this curve is damaged ({type(e).__name__}: {e}): make it again") from e


def tradeoff_svg(curve: Points, chosen: Point, width: int = 520, height: int = 300) -> str:
    """The curve as steps, since a plan fits every budget from its peak on."""
    points = sorted(curve.points, key=lambda p: p.total_peak_bytes)
    everything = [*points, chosen]
    low = min(p.total_peak_bytes for p in everything)
    high = max(p.total_peak_bytes for p in everything)
    margin = max(1, (high - low) // 20)
    low, high = max(0, low - margin), high + margin
    x = scale(low, high, LEFT, width - RIGHT)
    shares = share_ticks(max(p.slowdown for p in everything) * 1.05)
    y = scale(0, shares[-1], height - BOTTOM, TOP)
    parts: list[str] = []
    for s in shares:
        parts += [
            line(LEFT, y(s), width - RIGHT, y(s), "grid"),
            text(LEFT - 8, y(s) + 4, f"{100 * s:g} %", "axis", "end"),
        ]
    for size, name in byte_ticks(high, 6):
        if size >= low:
            parts += [line(x(size), TOP, x(size), height - BOTTOM, "grid")]
            parts += [text(x(size), height - BOTTOM + 16, name, "axis", "middle")]
    parts.append(text((LEFT + width - RIGHT) / 2, height - 6, "peak, everything in", "axis", "middle"))
    d = ""
    for k, p in enumerate(points):
        px, py = x(p.total_peak_bytes), y(p.slowdown)
        d += f"M{px:.1f} {py:.1f}" if not k else f"H{px:.1f}V{py:.1f}"
    if d:
        parts.append(f'<path d="{d}H{width - RIGHT}" class="curve"/>')
    parts += [_dot(x(p.total_peak_bytes), y(p.slowdown), 4, "point", p) for p in points]
    cx, cy = x(chosen.total_peak_bytes), y(chosen.slowdown)
    parts.append(_dot(cx, cy, 7, "chosen", chosen))
    near_end = cx > width * 0.7
    parts.append(
        text(cx + (-12 if near_end else 12), cy - 9, "this plan", "chosen-name", "end" if near_end else "start")
    )
    return picture(width, height, parts, "Added time against peak memory", "tradeoff")


def _dot(x: float, y: float, r: int, classes: str, p: Point) -> str:
    tip = f"{format_bytes(p.total_peak_bytes)}\n{format_percent(p.slowdown)} more time"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" class="{classes}" data-tip="{tip}"/>'
