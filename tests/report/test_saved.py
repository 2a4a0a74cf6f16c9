"""Reports of steps in which codes are held in the place of saved tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import lowtide
from lowtide.planning.blocks import history
from lowtide.planning.compress import compressed, uncompressed
from lowtide.planning.plan import Plan
from lowtide.planning.simulate import simulate
from lowtide.report.fates import What, fates, sentences
from lowtide.report.layers import without_plan
from lowtide.report.modules import module_table
from lowtide.report.page import page
from lowtide.report.saved import saved_storages
from lowtide.report.snapshot import snapshot
from lowtide.report.tree import module_work
from tests.planning.test_blocks import tops
from tests.plans import PLANS, random_plan
from tests.report.test_page import data_of
from tests.report.test_snapshot import replay


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Dropout(0.3), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.Sigmoid(),
        nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(8, 4, 3),
    )  # fmt: skip
    step = lowtide.trace(net, (torch.randn(8, 3, 40, 40),), loss=lambda y: y.square().mean(), optimizer="adamw")
    small = compressed(step, 1000)
    assert small.codes
    return [PLANS["keep all"](small), PLANS["drop everything"](small), *(random_plan(small, s) for s in range(1, 7))]


def test_blocks_peak_where_the_simulator_does(plans: list[Plan]) -> None:
    for plan in plans:
        assert history(plan.step, plan.keep, plan.runs).peak()[0] == plan.peak_bytes
        level = simulate(plan.step, plan).level_bytes
        assert all(top <= here for top, here in zip(tops(plan.step, plan.keep, dict(plan.runs)), level, strict=True))
        assert replay(snapshot(plan))[0] == plan.total_peak_bytes
        assert replay(snapshot(plan, baseline=True))[0] == plan.baseline_peak_bytes + plan.step.standing_bytes


def test_the_baseline_is_the_step_without_codes(plans: list[Plan]) -> None:
    plan = plans[0]
    assert simulate(plan.step).peak_bytes < plan.baseline_peak_bytes
    assert without_plan(plan.step).timeline.peak_bytes == plan.baseline_peak_bytes
    timeline = data_of(page(plan))["timeline"]
    assert isinstance(timeline, dict)
    assert max(timeline["baseline"]) == plan.baseline_peak_bytes + plan.step.standing_bytes


def test_kept_compressed_and_recomputed_are_what_autograd_saves(plans: list[Plan]) -> None:
    plain = uncompressed(plans[0].step)
    storages = {plain.values[s.value].storage for s in plain.saves if 0 <= plain.values[s.value].op < plain.n_forward}
    total = sum(plain.storages[s].nbytes for s in storages)
    for plan in plans:
        saved = saved_storages(plan.step, plan.keep)
        assert sum(s.nbytes for s in saved) == total
        assert all(s.recomputed_bytes in (0, s.nbytes) for s in saved)
        for rows in (module_table(plan.step, plan.keep), module_work(plan, 1, {})):
            assert sum(r.kept_bytes + r.compressed_bytes + r.dropped_bytes for r in rows) == total
    assert sum(s.compressed_bytes for s in saved_storages(plans[0].step, plans[0].keep)) > 0
    assert "compressed" in repr(plans[0])
    assert "compressed away" in page(plans[0])


def test_a_value_that_is_held_as_a_code_says_so(plans: list[Plan]) -> None:
    coded = [f for f in fates(plans[0]) if f.what is What.CODED]
    assert coded
    assert all(f.code_bytes < f.nbytes for f in coded)
    assert "all that backward needs of it is a code of" in " ".join(s for f in coded for s in sentences(plans[0], f))
    for plan in plans:
        for f in fates(plan):
            assert (f.what in (What.KEPT, What.SOURCE)) == (f.value in plan.keep)
