"""Reports on a terminal: the same words and numbers as the text, drawn as tables."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from lowtide.cli.terminal import Terminal
from lowtide.planning.simulate import simulate
from lowtide.report.document import Document, plain
from lowtide.report.text import plan_document, step_document, timeline_document, verdict_document
from tests.test_report_text import _Difference, _Verdict, make_plan, make_step

STEP = make_step(tuple(f"features.{i}.block" for i in range(12)))
DOCUMENTS = {
    "plan": plan_document(make_plan(STEP)),
    "step": step_document(STEP),
    "timeline": timeline_document(simulate(STEP)),
    "verdict": verdict_document(_Verdict()),
    "differs": verdict_document(_Verdict(ok=False, differences=(_Difference("a [bold]b[/bold] differs"),))),
}


def drawn(document: Document, terminal: bool = True, colour: bool = True) -> str:
    file = io.StringIO()
    console = Console(
        file=file, force_terminal=terminal, width=80, highlight=False, no_color=not colour, color_system="256",
        soft_wrap=True,
    )  # fmt: skip
    Terminal(console).show_document(document)
    return file.getvalue()


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_a_terminal_shows_all_words_of_the_text(name: str) -> None:
    document = DOCUMENTS[name]
    text = re.sub(r"\x1b\[[0-9;]*m", "", drawn(document))
    assert sorted(re.sub(r"[─\s]+", " ", text).split()) == sorted(plain(document).split())
    assert max(map(len, text.splitlines())) <= 80
    assert "─" in text
    assert "…" not in text


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_a_pipe_gets_the_plain_text(name: str) -> None:
    assert drawn(DOCUMENTS[name], terminal=False) == plain(DOCUMENTS[name]) + "\n"


def test_good_is_green_and_bad_is_red_unless_colours_are_not_wanted() -> None:
    assert "\x1b[1;32m" in drawn(DOCUMENTS["verdict"])
    assert "\x1b[1;31m" in drawn(DOCUMENTS["differs"])
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", drawn(DOCUMENTS["differs"], colour=False))


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_it_fits_a_screen(name: str) -> None:
    lines = plain(DOCUMENTS[name]).splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80
