"""Memory over a step as a picture of block characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from lowtide.planning.step import Phase
from lowtide.units import format_bytes

if TYPE_CHECKING:
    from lowtide.planning.step import Step

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def curve(step: Step, level_bytes: Sequence[int], *, width: int = 72, height: int = 6) -> list[str]:
    """`height` lines of `width` characters, each column the highest level of its share of the moments, the scale at
    the left, and a line that names the phases below."""
    n = len(level_bytes)
    width = min(width, n)
    starts = [*_starts(step, n, width), n]
    tops = [max(level_bytes[a:b]) for a, b in pairwise(starts)]
    peak = max(1, *tops) if tops else 1
    eighths = [-(-8 * height * max(0, t) // peak) for t in tops]
    label = format_bytes(peak)
    lines: list[str] = []
    for row in reversed(range(height)):
        cells = "".join(_EIGHTHS[min(8, max(0, e - 8 * row))] for e in eighths)
        lines.append(f"{label if row == height - 1 else '':>{len(label)}} |{cells}".rstrip())
    lines.append(f"{' ' * len(label)} |{_phases(step, starts)}".rstrip())
    return lines


def _starts(step: Step, n: int, width: int) -> list[int]:
    """The first moment of each column. An optimizer of many small ops gets an eighth of the width at most."""
    before = next((m for m in range(n) if _phase(step, m) is Phase.OPTIMIZER), n)
    after = min(n - before, max(1, width // 8)) if 0 < before < n else n - before
    first = min(before, width - after)
    return [before * c // first for c in range(first)] + [before + (n - before) * c // after for c in range(after)]


def _phases(step: Step, starts: list[int]) -> str:
    """The phases' names where each begins, cut where the next one does."""
    names = [_phase(step, m).value for m in starts[:-1]]
    text = ""
    while len(text) < len(names):
        name = names[len(text)]
        length = next((c for c, other in enumerate(names[len(text) :]) if other != name), len(names) - len(text))
        text += name[: length - 1].ljust(length - 1) + " " if length > 1 else name[:1]
    return text


def _phase(step: Step, moment: int) -> Phase:
    what = step.moments[moment]
    return step.ops[what].phase if what >= 0 else Phase.BACKWARD
