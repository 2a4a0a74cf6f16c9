from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lowtide.cli import main
from lowtide.report.explain import explain_module, explain_plan
from lowtide.report.fates import fates
from tests.plans import random_plan
from tests.test_report_text import make_plan, make_step


def test_a_plan_is_explained_as_in_the_golden_file(golden: Callable[[str, str], None]) -> None:
    plan = random_plan(make_step(("conv", "norm", "act", "head")), 3)
    golden("explain", explain_plan(plan, fates(plan)))
    golden("explain_module", explain_module(plan, [f for f in fates(plan) if f.op]))


def test_the_largest_values_are_shown_and_the_rest_counted() -> None:
    plan = random_plan(make_step(tuple("abcdefgh")), 3)
    text = explain_plan(plan, fates(plan), top=2)
    assert "5 smaller ones are left out (40.00 MiB)" in text
    assert text.count("MiB") == 3
    assert "left out" not in explain_plan(plan, fates(plan), top=0)


def test_one_module_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    make_plan(make_step(("a.0", "a.1", "ab.0"))).save(path)
    assert main(["explain", str(path), "--module", "a"]) == 0
    out = capsys.readouterr().out
    assert "a.0" in out
    assert "a.1" in out
    assert "ab.0\n" not in out
    assert main(["explain", str(path), "--module", "a.0", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(r["module"], r["what"], r["value"]) for r in rows] == [("a.0", "kept", 2)]
    assert main(["explain", str(path)]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    assert main(["explain", str(path), "--module", "abc.0"]) == 2
    assert "did you mean 'ab.0'" in capsys.readouterr().err
    assert main(["explain", str(path), "--top", "-1"]) == 2
