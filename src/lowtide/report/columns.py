"""Rows of text in aligned columns: the first to the left, the others to the right."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest


def columns(rows: Sequence[Sequence[str]], *, indent: str = "", gap: int = 2) -> list[str]:
    """Lines with aligned columns. Rows may be shorter than the longest; nothing trails.

    >>> columns([["peak", "10 MiB"], ["bound", "5 MiB"]])
    ['peak   10 MiB', 'bound   5 MiB']
    """
    width = [
        max((len(row[c]) for row in rows if c < len(row)), default=0) for c in range(max(map(len, rows), default=0))
    ]
    lines: list[str] = []
    for row in rows:
        cells = [cell.ljust(width[c]) if c == 0 else cell.rjust(width[c]) for c, cell in enumerate(row)]
        lines.append((indent + (" " * gap).join(cells)).rstrip())
    return lines


def beside(left: Sequence[str], right: Sequence[str], gap: int = 6) -> list[str]:
    """Two blocks of lines, one to the right of the other."""
    width = max(map(len, left), default=0) + gap
    return [(a.ljust(width) + b).rstrip() for a, b in zip_longest(left, right, fillvalue="")]


def shorten(text: str, width: int) -> str:
    """`text` in at most `width` characters; what is left out is in the middle, since paths differ at both ends."""
    if len(text) <= width:
        return text
    head = (width - 3) // 2
    return f"{text[:head]}...{text[len(text) - (width - 3 - head) :]}"
