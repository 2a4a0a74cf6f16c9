"""The pages about the thesis say what the results say that stand beside them."""

from __future__ import annotations

import re

import pytest

from benchmarks import thesis_page
from benchmarks.thesis_page import DOCS, STORE, filled, page, read, tables
from benchmarks.thesis_sentences import SECTIONS, between, said


def test_docs_say_what_the_results_say() -> None:
    results = read(STORE)
    text = (DOCS / "thesis.md").read_text()
    assert page(text, results) == text, "run python -m benchmarks.thesis_page"
    assert (DOCS / "thesis-results.md").read_text() == tables(results)
    for number in SECTIONS:
        assert list(STORE.glob(f"{number}-*.png"))


def test_a_number_typed_in_does_not_last() -> None:
    results = read(STORE)
    text = (DOCS / "thesis.md").read_text()
    wrong = re.sub(r"(results: 5.3 -->.*?)\d+ MB", r"\g<1>1 MB", text, flags=re.DOTALL)
    assert wrong != text
    assert page(wrong, results) == text


def test_a_mark_that_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="results: how"):
        page("nothing", read(STORE))


def test_results_of_quick_runs_are_not_taken(tmp_path: object) -> None:
    with pytest.raises(SystemExit, match=r"lacks full results of 5\.2, 5\.3"):
        thesis_page.main([str(tmp_path)])


def test_words() -> None:
    assert said(["a"]) == "a"
    assert said(["a", "b", "c"]) == "a, b and c"
    assert between([3.4, 9.6]) == "3 to 10"
    assert between([3.4, 3.3]) == "3"
    assert filled("| a |\n| b |") == "| a |\n| b |"
