"""What commands say: results on stdout, everything else on stderr. Plain text when nobody watches."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable
from rich.text import Text

from lowtide.report.document import Document, Facts, Lines, Mood, Pair, Part, Picture, Table, plain

Report = Callable[[str, float], None]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `main`; rich would exit with status 1, which means something else here."""
        raise BrokenPipeError


class Terminal:
    """Output of one command. Colours and progress bars only where a person looks; `NO_COLOR` is respected."""

    def __init__(self, out: Console | None = None) -> None:
        self._out = out or _Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self._err = _Console(file=sys.stderr, highlight=False, soft_wrap=True)

    def show(self, text: str, style: str = "") -> None:
        """A part of the result, on stdout, never wrapped."""
        self._out.print(Text(text, style=style))

    def show_document(self, document: Document) -> None:
        """A report on stdout: with tables where a person looks, as plain text elsewhere."""
        if not self._out.is_terminal:
            self.show(plain(document))
            return
        style = {Mood.GOOD: "bold green", Mood.BAD: "bold red"}.get(document.mood, "bold")
        self._out.print(Text(document.title, style=style))
        for k, part in enumerate(document.parts):
            if k or not isinstance(part, Lines):
                self._out.print()
            self._out.print(_drawn(part))

    def show_json(self, data: Any) -> None:
        """The result for programs."""
        self._out.print(Text(json.dumps(data, indent=2)))

    def note(self, text: str) -> None:
        """A remark on stderr."""
        self._err.print(Text(one_line(text), style="dim"))

    def show_warning(self, message: Warning | str, *_: Any, **__: Any) -> None:
        """Something that went on otherwise than asked, on stderr, in one line. Fits `warnings.showwarning`."""
        text = Text(one_line(str(message)), style="default")
        self._err.print(Text("lowtide: warning: ", style="bold yellow").append(text))

    def error(self, text: str) -> None:
        """What went wrong, on stderr, in one line."""
        self._err.print(Text("lowtide: error: ", style="bold red").append(Text(one_line(text), style="default")))

    @contextmanager
    def progress(self) -> Generator[Report | None]:
        """A callback (stage, fraction) that draws a bar on stderr, or None where that is no terminal."""
        if not self._err.is_terminal:
            yield None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
        with Progress(*columns, TimeElapsedColumn(), console=self._err, transient=True) as bar:
            task = bar.add_task("start", total=1.0)
            yield lambda stage, fraction: bar.update(task, description=stage, completed=fraction)


def _drawn(part: Part) -> RenderableType:
    """A part of a report as rich draws it."""
    if isinstance(part, Facts):
        grid = RichTable.grid(padding=(0, 2))
        for label, text in part.rows:
            grid.add_row(Text(label, style="dim"), Text(text))
        return grid
    if isinstance(part, Table):
        return _table(part)
    if isinstance(part, Pair):
        grid = RichTable.grid(padding=(0, 3))
        grid.add_row(_table(part.left), _table(part.right))
        return grid
    style = "cyan" if isinstance(part, Picture) else ""
    return Text("\n".join(part.lines), style=style)


def _table(part: Table) -> RichTable:
    """The first row above a rule; a last row of sums below another."""
    head, *rows = part.rows
    table = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    for k, name in enumerate(head):
        table.add_column(Text(name), justify="left" if k == 0 else "right", no_wrap=True)
    for row in rows:
        cells = [*row, *[""] * (len(head) - len(row))]
        table.add_row(*(Text(cell) for cell in cells), style="bold" if row[0] == "all" else None)
    return table


def one_line(text: str) -> str:
    """`text` without line breaks: an error is one line, whatever a library put into it."""
    return " ".join(text.split())
