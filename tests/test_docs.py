"""The documentation: every block of code on its pages runs and prints what is shown; nothing public is left out."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from docs.generate import commands, docstring, hook, reference
from lowtide.cli.main import build_parser, command_modules
from lowtide.planning.plan import FORMAT, Plan
from lowtide.planning.solve import SOLVERS
from lowtide.planning.step import Code, Op, Save, Step, Storage, Value
from tests.doc_pages import blocks, run_page, same, with_outputs
from tests.test_report_text import make_plan, make_step

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
WRITTEN = {str(p.relative_to(ROOT)): p for p in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]}
RUN = sorted(name for name, p in WRITTEN.items() if re.search(r"^```(python|console)$", p.read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", RUN)
def test_every_block_of_a_written_page_runs_and_prints_what_is_shown(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    page = WRITTEN[name].read_text()
    outputs = run_page(page, tmp_path)
    wrong = [shown for shown in outputs if not shown.right]
    if wrong and request.config.getoption("--update-golden"):
        WRITTEN[name].write_text(with_outputs(page, outputs))
        return
    assert not wrong, f"{name} shows\n{wrong[0].block.text}\nbut this is printed (--update-golden):\n{wrong[0].printed}"


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_example_on_a_solvers_page_runs(solver: str, tmp_path: Path) -> None:
    if solver == "exact":
        pytest.importorskip("ortools", reason="solver 'exact' needs ortools")
    page = hook.generated_pages()[f"solvers/{solver}.md"]
    assert len(blocks(page)) == 1
    run_page(page, tmp_path)


def _lowtide_lines(page: str) -> list[str]:
    """Calls of the command in blocks that are only read."""
    text = "\n".join(b.text for b in blocks(page) if b.language in ("shell", "console"))
    calls = [part for line in text.splitlines() for part in line.removeprefix("$ ").split("&&")]
    return [call.strip() for call in calls if call.strip().startswith("lowtide ")]


@pytest.mark.parametrize("name", sorted({**WRITTEN, **dict.fromkeys(hook.generated_pages())}))
def test_every_command_on_a_page_is_one(name: str) -> None:
    page = WRITTEN[name].read_text() if name in WRITTEN else hook.generated_pages()[name]
    for line in _lowtide_lines(page):
        argv = shlex.split(line.split(" | ")[0].split(" > ")[0], comments=True)[1:]
        assert build_parser().parse_args(argv).run is not None, line


def test_there_is_a_page_per_command_and_per_solver_with_all_that_can_be_set() -> None:
    pages = hook.generated_pages()
    assert {f"commands/{name}.md" for name in command_modules()} <= set(pages)
    for name, parser in commands.parsers_by_name().items():
        for action in parser._actions:
            for option in action.option_strings:
                assert option in pages[f"commands/{name}.md"], f"{option} of lowtide {name}"
    for name, solver in SOLVERS.items():
        for setting in fields(solver):
            assert re.search(rf"\| `{setting.name}` \| `.*` \| .+ \|", pages[f"solvers/{name}.md"]), (
                f"{setting.name} of {name}"
            )


def test_every_public_name_is_in_the_reference_once() -> None:
    listed = [name for _, names in reference.PAGES.values() for name in names]
    assert len(listed) == len(set(listed))
    assert set(listed) | (set(reference.ELSEWHERE) & reference.exported()) == reference.exported()


def test_every_mark_on_a_page_is_filled() -> None:
    for path in DOCS.rglob("*.md"):
        assert "<!-- made:" not in hook.filled(path.read_text()), path


def test_the_page_about_the_format_names_every_field_in_its_place() -> None:
    page = hook.filled((DOCS / "plan-format.md").read_text())
    plan = make_plan(make_step())
    for field in [*plan.to_json(), *plan.step.to_json()]:
        assert f"`{field}`" in page, field
    assert f"format {FORMAT}" in page
    for column, record in (("ops", Op), ("values", Value), ("storages", Storage), ("saves", Save), ("codes", Code)):
        for row in plan.step.to_json()[column]:
            assert len(row) == len(fields(record)), column
    assert Plan.from_json(plan.to_json()).step == Step.from_json(plan.step.to_json())


def test_sections_of_docstrings_are_told_apart() -> None:
    doc = docstring.parse(
        """One line.

        More.

        Args:
            a, b: two
                things.
            c: one.

        Returns:
            Something.

        Idea: think
        twice.
        """
    )
    assert (doc.summary, doc.text) == ("One line.", "More.")
    assert [s.head for s in doc.sections] == ["Args", "Returns", "Idea"]
    assert doc.sections[0].entries() == {"a, b": "two things.", "c": "one."}
    assert "* `a`, `b`: two things." in doc.markdown()
    assert "**Idea:** think\ntwice." in doc.markdown()


def test_only_times_may_differ_and_other_numbers_where_the_page_says_so() -> None:
    assert same("peak 3 MiB, 2.50 ms\n", "peak 3 MiB, 13.1 us", False)
    assert not same("peak 3 MiB", "peak 4 MiB", False)
    assert same("peak 3 MiB", "peak 14.5 KiB", True)
    assert not same("peak 3 MiB", "bound 3 MiB", True)
