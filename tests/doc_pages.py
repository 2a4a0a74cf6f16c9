"""Code blocks of a Markdown page, run in order as a reader would.

* `python`: runs; the blocks of a page share their names. With a title it is a file, which is written and not run.
* `console`: lines after `$` run; the others are what they print.
* `shell`: commands to read, each of which `lowtide` must know the options of.
* `text` right after a `python` block: what that prints.

Times in outputs may differ. After a comment `varies` all numbers may: they depend on the machine.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from lowtide.cli import main

_FENCE = re.compile(r"(<!-- varies -->\n)?^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TIME = re.compile(r"\b\d[\d.,]* (?:ns|us|ms|s|MB/s)\b|\b\d+\.\d+x\b")
_NUMBER = re.compile(r"-?\d[\d.,:]*(?: [KMGT]?i?B\b| [kMGTP]FLOP\b)?|\binf\b")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file it is if it has a title, its text and where that is in the page."""

    language: str
    title: str
    text: str
    varies: bool
    start: int
    end: int


def blocks(markdown: str) -> list[Block]:
    return [Block(m[2], m[3] or "", m[4], bool(m[1]), m.start(4), m.end(4)) for m in _FENCE.finditer(markdown)]


def same(shown: str, printed: str, varies: bool) -> bool:
    """Whether the page shows what was printed, as far as that is the same everywhere."""
    return _masked(shown, varies) == _masked(printed, varies)


def _masked(text: str, varies: bool) -> str:
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    text = _TIME.sub("<time>", "\n".join(lines))
    return re.sub(r" +", " ", _NUMBER.sub("<number>", text)) if varies else re.sub(r" *<time>", " <time>", text)


@dataclass(frozen=True)
class Shown:
    """An output on the page, and what was printed instead of it."""

    block: Block
    printed: str

    @property
    def right(self) -> bool:
        return same(self.block.text, self.printed, self.block.varies)


def run_page(markdown: str, folder: Path) -> list[Shown]:
    """Run everything on a page, with `folder` as the current one, and return all outputs."""
    found = blocks(markdown)
    module = ModuleType("page")  # classes look up the module that they are made in
    names = vars(module)
    outputs: list[Shown] = []
    with _working_in(folder):
        sys.modules["page"] = module
        for k, block in enumerate(found):
            if block.title:
                (folder / block.title).write_text(block.text)
            elif block.language == "python":
                printed = _run_python(block.text, names)
                after = found[k + 1] if k + 1 < len(found) else None
                if after is not None and after.language == "text":
                    outputs.append(Shown(after, printed))
            elif block.language == "console":
                outputs.append(Shown(block, _run_console(block.text, folder)))
    return outputs


@contextlib.contextmanager
def _working_in(folder: Path) -> Generator[None]:
    """Be in `folder`, import from it, and forget what was imported there."""
    before, modules = Path.cwd(), set(sys.modules)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path.remove(str(folder))
        for name in set(sys.modules) - modules:
            where = getattr(sys.modules[name], "__file__", None)
            if name == "page" or (where and Path(where).is_relative_to(folder)):
                del sys.modules[name]


def _run_python(code: str, names: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(code, "<page>", "exec"), names)
    return out.getvalue()


def _run_console(text: str, folder: Path) -> str:
    """The block as it would be now: its commands, and what they print."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            lines += [line, _printed_by(line[2:], folder).strip("\n")]
    return "\n".join(line for line in lines if line) + "\n"


def _printed_by(command: str, folder: Path) -> str:
    words = command.split()
    if words[0] == "lowtide" and not set(command) & set("|&;>'\""):
        return run_lowtide(words[1:])
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    return done.stdout


def run_lowtide(argv: list[str]) -> str:
    """What the command prints as its result, when nobody watches."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        main(argv)
    return out.getvalue()


def with_outputs(markdown: str, outputs: list[Shown]) -> str:
    """The page with what was printed in place of what it shows."""
    for shown in reversed(outputs):
        if not shown.right:
            text = "\n".join(line.rstrip() for line in shown.printed.strip("\n").splitlines())
            markdown = markdown[: shown.block.start] + text + "\n" + markdown[shown.block.end :]
    return markdown
