from __future__ import annotations

import pytest

from lowtide.planning.blocks import Kind
from lowtide.planning.simulate import simulate
from lowtide.planning.step import Category
from lowtide.report.fates import What, fates, sentences
from lowtide.report.layers import layers_of
from lowtide.report.names import short_op
from lowtide.report.tree import depths, module_work
from tests.planning.test_blocks import traced
from tests.plans import PLANS, random_plan
from tests.test_report_text import make_step


@pytest.mark.parametrize("seed", range(6))
def test_layers_add_up_to_the_timeline(seed: int) -> None:
    step = traced("in place")
    plan = random_plan(step, seed) if seed else None
    found = layers_of(step, plan)
    timeline = simulate(step, plan)
    for m in range(step.n_moments):
        assert sum(row[m] for row in found.of.values()) == timeline.level_bytes[m] + step.standing_bytes
        assert found.of[Kind.GRADIENT][m] == timeline.by_category(m)[Category.GRADIENT]
    assert all(min(row) >= 0 for row in found.of.values())
    if plan is None:
        assert max(found.of[Kind.RECOMPUTED]) == 0


@pytest.mark.parametrize("depth", [1, 2])
def test_rows_of_modules_add_up_to_the_plan(depth: int) -> None:
    step = make_step(("a.0", "a.1", "b.0", "c"))
    plan = random_plan(step, 3)
    rows = module_work(plan, depth, {"a.1": 5, "(optimizer)": 2})
    assert depths(step) == 2
    assert sum(r.recompute_ops for r in rows) == plan.recompute_ops > 0
    assert sum(r.recompute_flops for r in rows) == plan.recompute_flops
    assert {r.module: r.peak_bytes for r in rows if r.peak_bytes} == {"a" if depth == 1 else "a.1": 5, "(optimizer)": 2}
    assert sum(r.saved_bytes for r in rows) == 3 * 8 * 2**20
    assert next(r.module for r in rows) == ("a" if depth == 1 else "a.0")


def test_every_value_has_a_fate_that_the_plan_bears_out() -> None:
    step = traced("in place")
    plan = random_plan(step, 4)
    runs = [o for ops in plan.runs.values() for o in ops]
    assert runs
    for fate in fates(plan):
        kept = fate.what in (What.KEPT, What.SOURCE)
        assert kept == (fate.value in plan.keep)
        op = step.values[fate.value].op
        assert len(fate.made_at) == runs.count(op)
        if fate.what is What.RECOMPUTED:
            assert fate.asked_at
            assert fate.made_at[0] <= fate.asked_at[0]
        assert all(s.endswith(".") for s in sentences(plan, fate))


def test_a_fate_says_why() -> None:
    step = make_step(("a", "b", "c", "d"))
    plan = random_plan(step, 3)
    by_value = {f.value: f for f in fates(plan)}
    texts = {f.what: " ".join(sentences(plan, f)) for f in by_value.values()}
    assert "Saved for the backward of f of b." in sentences(plan, by_value[2])
    assert "recomputed once: before the backward of" in texts[What.RECOMPUTED]
    assert "there anyway" in texts[What.THERE]
    assert "goes as soon as forward is done" in texts[What.FREE]


def test_what_is_overwritten_in_place_says_by_what() -> None:
    step = traced("in place")
    plan = PLANS["keep all"](step)
    texts = [s for fate in fates(plan) for s in sentences(plan, fate)]
    assert "Not saved for backward: relu_ of 2 overwrites it." in texts


def test_ops_have_short_names() -> None:
    assert short_op("aten.convolution.default") == "convolution"
    assert short_op("mine") == "mine"
