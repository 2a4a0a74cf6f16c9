"""What commands say: results on stdout, everything else on stderr. Plain text when nobody watches."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

Report = Callable[[str, float], None]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `main`; rich would exit with status 1, which means something else here."""
        raise BrokenPipeError


class Terminal:
    """Output of one command. Colours and progress bars only where a person looks; `NO_COLOR` is respected."""

    def __init__(self) -> None:
        self._out = _Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self._err = _Console(file=sys.stderr, highlight=False, soft_wrap=True)

    def show(self, text: str, style: str = "") -> None:
        """A part of the result, on stdout, never wrapped."""
        self._out.print(Text(text, style=style))

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


def one_line(text: str) -> str:
    """`text` without line breaks: an error is one line, whatever a library put into it."""
    return " ".join(text.split())
