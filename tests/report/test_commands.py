"""The commands that read a plan from a file: what they write and say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lowtide.cli import main
from lowtide.planning.tradeoff import tradeoff
from tests.planning.test_blocks import traced
from tests.plans import random_plan
from tests.report.test_page import data_of
from tests.test_report_text import make_step


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    random_plan(traced("in place"), 2).save(path)
    return path


def test_report_writes_a_page_named_as_the_plan(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(saved)]) == 0
    page = saved.with_suffix(".html")
    assert capsys.readouterr().out == f"wrote {page}\n"
    assert data_of(page.read_text())["peak_bytes"] == json.loads(saved.read_text())["peak_bytes"]
    page.unlink()


def test_report_draws_figures_without_a_page(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    png, svg = tmp_path / "a.png", tmp_path / "a.svg"
    assert main(["report", str(saved), "--png", str(png), "--svg", str(svg), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": [str(png), str(svg)]}
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "without a plan" in svg.read_text() or "<svg" in svg.read_text()
    first = svg.read_bytes()
    assert main(["report", str(saved), "--svg", str(svg)]) == 0
    assert svg.read_bytes() == first
    assert not saved.with_suffix(".html").exists()


def test_a_figure_without_matplotlib_says_what_to_install(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", str(saved), "--png", str(tmp_path / "a.png")]) == 2
    assert "pip install 'lowtide[report]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_report_draws_a_curve_from_a_file_or_plans_it(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, curve = tmp_path / "r.html", tmp_path / "curve.json"
    curve.write_text(json.dumps(tradeoff(traced("in place"), points=3).to_json()))
    assert main(["report", str(saved), "-o", str(output), "--curve", str(curve)]) == 0
    assert 'class="chosen"' in output.read_text()
    assert main(["report", str(saved), "-o", str(output), "--points", "3", "--curve"]) == 0
    assert 'class="chosen"' in output.read_text()
    capsys.readouterr()
    curve.write_text(json.dumps(tradeoff(make_step(), points=3).to_json()))
    assert main(["report", str(saved), "-o", str(output), "--curve", str(curve)]) == 2
    assert "another step" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_leaves_no_file(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(saved), "-o", str(tmp_path / "no" / "r.html")]) == 2
    assert main(["report", str(saved), "-o", str(tmp_path)]) == 2
    assert main(["report", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 3
    assert list(tmp_path.iterdir()) == []
