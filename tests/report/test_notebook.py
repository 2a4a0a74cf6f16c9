"""What notebooks show, and the example notebook, run for real."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lowtide.planning.simulate import simulate
from lowtide.report.document import Document, Lines, Table, plain
from lowtide.report.notebook import verdict_html
from lowtide.units import format_bytes
from tests.planning.test_blocks import traced
from tests.plans import random_plan
from tests.report.test_page import _Tags
from tests.test_report_text import _Difference, _Verdict, make_step

EXAMPLES = Path(__file__).parents[2] / "examples"


def well_formed(html: str) -> str:
    tags = _Tags()
    tags.feed(html)
    assert tags.open == []
    return html


def test_a_plan_shows_its_timeline_and_its_numbers() -> None:
    plan = random_plan(traced("in place"), 2)
    html = well_formed(plan._repr_html_())
    assert html.count("<svg") == 1
    assert format_bytes(plan.peak_bytes) in html
    assert "recomputed" in html
    assert "<script" not in html
    assert len(html) < 200_000


def test_a_timeline_shows_itself() -> None:
    step = make_step(("a", "<b>", "c"))
    html = well_formed(simulate(step)._repr_html_())
    assert format_bytes(simulate(step).total_peak_bytes) in html
    assert "█" not in html


@pytest.mark.parametrize("ok", [True, False])
def test_a_verdict_shows_whether_it_is_good(ok: bool) -> None:
    html = well_formed(verdict_html(_Verdict(ok=ok, differences=() if ok else (_Difference("<w> differs"),))))
    assert f'<b class="{"good" if ok else "bad"}">' in html
    assert ("&lt;w&gt; differs" in html) != ok


def test_a_document_is_plain_text_with_a_line_between_parts() -> None:
    table = Table([["", "n"], ["a", "1"]])
    assert plain(Document("t", [table, Lines(["x"])])) == "t\n\n   n\na  1\n\nx"
    assert plain(Document("t:", [Lines(["x"]), table])) == "t:\nx\n\n   n\na  1"


def test_the_example_notebook_runs(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient: pip install 'lowtide[dev]'")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    shown = [o for cell in notebook.cells for o in cell.get("outputs", ())]
    assert not [o for o in shown if o["output_type"] == "error"]
    html = [o["data"]["text/html"] for o in shown if "text/html" in o.get("data", {})]
    assert len(html) >= 3
    assert "<svg" in html[0]
    assert any("bit for bit" in text for text in html)


def test_the_example_notebook_is_kept_without_outputs() -> None:
    cells = json.loads((EXAMPLES / "quickstart.ipynb").read_text())["cells"]
    code = [c for c in cells if c["cell_type"] == "code"]
    assert code
    assert all(c["outputs"] == [] and c["execution_count"] is None for c in code)
