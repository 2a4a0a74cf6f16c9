"""A report as data: what is said, apart from how it looks. Text, a terminal's tables and HTML are made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest
from textwrap import wrap

from lowtide.report.columns import beside, columns

WIDTH = 80


class Mood(str, Enum):
    """How a title is meant."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True)
class Lines:
    """Text that stands as it is."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Picture:
    """A picture of block characters. Where there are better ones, it is left out."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Facts:
    """Labels and sentences."""

    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first row says what is in the columns. The first column is text, the others are numbers."""

    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Pair:
    """Two tables side by side."""

    left: Table
    right: Table


Part = Lines | Picture | Facts | Table | Pair


@dataclass(frozen=True)
class Document:
    """A title and what is below it."""

    title: str
    parts: Sequence[Part]
    mood: Mood = Mood.PLAIN


def plain(document: Document) -> str:
    """As text without any decoration, 80 columns wide where its words allow."""
    blocks = [[document.title], *map(_block, document.parts)]
    if document.parts and isinstance(document.parts[0], Lines):  # it goes on with what the title says
        blocks[:2] = [[*blocks[0], *blocks[1]]]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _block(part: Part) -> list[str]:
    if isinstance(part, Facts):
        return facts(part.rows)
    if isinstance(part, Table):
        return columns(part.rows)
    if isinstance(part, Pair):
        left, right = columns(part.left.rows), columns(part.right.rows)
        gap = max(2, min(6, WIDTH - max(map(len, left), default=0) - max(map(len, right), default=0)))
        return beside(left, right, gap)
    return list(part.lines)


def facts(rows: Sequence[Sequence[str]], width: int = WIDTH) -> list[str]:
    """Label and text, both to the left, long text on several lines."""
    label_width = max((len(label) for label, _ in rows), default=0)
    lines: list[str] = []
    for label, text in rows:
        parts = wrap(text.replace(" %", "\u00a0%"), width - label_width - 2, break_long_words=False) or [""]
        for name, part in zip_longest([label], parts, fillvalue=""):
            lines.append(f"{name.ljust(label_width)}  {part}".rstrip().replace("\u00a0", " "))
    return lines
