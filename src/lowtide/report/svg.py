"""Small helpers for pictures as SVG: text, scales, steps. Colours are classes that the style sheet fills in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import ceil, floor, log2

from lowtide.units import format_bytes

Scale = Callable[[float], float]


def scale(low: float, high: float, start: float, end: float) -> Scale:
    """Numbers in [low, high] -> coordinates between start and end."""
    span = (high - low) or 1.0
    return lambda x: start + (end - start) * (x - low) / span


def coordinate(x: float) -> str:
    """A number with one decimal at most."""
    return f"{x:.1f}".rstrip("0").rstrip(".")


def text(x: float, y: float, content: str, classes: str = "", anchor: str = "start") -> str:
    """One line of text."""
    where = f'x="{coordinate(x)}" y="{coordinate(y)}"'
    style = f' class="{classes}"' if classes else ""
    return f'<text {where} text-anchor="{anchor}"{style}>{escape(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, classes: str) -> str:
    """A straight line."""
    c = coordinate
    return f'<line x1="{c(x1)}" y1="{c(y1)}" x2="{c(x2)}" y2="{c(y2)}" class="{classes}"/>'


def rectangle(x: float, y: float, width: float, height: float, classes: str, tip: str = "") -> str:
    """A filled rectangle; `tip` is shown where the pointer is over it."""
    c = coordinate
    more = f' data-tip="{escape(tip)}"' if tip else ""
    box = f'x="{c(x)}" y="{c(y)}" width="{c(width)}" height="{c(max(0.0, height))}"'
    return f'<rect {box} class="{classes}"{more}/>'


def steps(edges: Sequence[float], ys: Sequence[float]) -> str:
    """Path data of a step function: `ys[k]` between `edges[k]` and `edges[k + 1]`."""
    c = coordinate
    parts = [f"M{c(edges[0])} {c(ys[0])}"]
    for k, y in enumerate(ys):
        if k and c(y) != c(ys[k - 1]):
            parts.append(f"V{c(y)}")
        if k + 1 == len(ys) or c(ys[k + 1]) != c(y):
            parts.append(f"H{c(edges[k + 1])}")
    return "".join(parts)


def area(edges: Sequence[float], tops: Sequence[float], bottoms: Sequence[float]) -> str:
    """Path data of what is between two step functions."""
    back = steps([*reversed(edges)], [*reversed(bottoms)])
    return f"{steps(edges, tops)}L{back[1:]}Z"


def byte_ticks(top: int, n: int = 5) -> list[tuple[int, str]]:
    """About `n` round sizes from 0 up to `top`, with labels."""
    if top <= 0:
        return [(0, "0")]
    raw = top / n
    unit = 2 ** (10 * floor(log2(raw) / 10)) if raw >= 1 else 1
    share = raw / unit
    choices = (1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 50, 64, 100, 128, 200, 250, 256, 400, 512, 1024)
    step = next((s for s in choices if s >= share), 1024) * unit
    if unit >= 1024 and share < 1.5 and step == 2 * unit:
        step = int(1.5 * unit)
    sizes = [k * step for k in range(floor(top / step) + 1)]
    return [(size, _round(size)) for size in sizes]


def _round(size: int) -> str:
    number, _, unit = format_bytes(size).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}" if size else "0"


def share_ticks(top: float, n: int = 5) -> list[float]:
    """About `n` round fractions from 0 up to at least `top`."""
    raw = max(top, 1e-4) / n
    step = next(s for e in range(-6, 4) for s in (10.0**e, 2 * 10.0**e, 5 * 10.0**e) if s >= raw)
    return [k * step for k in range(ceil(top / step) + 1)]


def picture(width: int, height: int, parts: Sequence[str], label: str, classes: str = "") -> str:
    """The whole picture; it takes the width that it is given. `label` says what is on it to those who cannot see it."""
    box = f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}"'
    body = "\n".join(part for part in parts if part)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} class="lowtide {classes}">\n{body}\n</svg>'
