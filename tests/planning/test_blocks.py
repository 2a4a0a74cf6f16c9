"""The blocks of a plan against the simulator, which counts without naming."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import lowtide
from lowtide.planning.blocks import Kind, Turn, history
from lowtide.planning.simulate import simulate
from lowtide.planning.step import Step
from tests.plans import drop_everything, random_plan
from tests.test_report_text import make_step


def traced(kind: str) -> Step:
    torch.manual_seed(0)
    nets = {
        "plain": nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8)),
        "in place": nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Conv2d(8, 8, 3),
            nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3), nn.SiLU(),
        ),
    }  # fmt: skip
    x = torch.randn(16, 64) if kind == "plain" else torch.randn(4, 3, 20, 20)
    return lowtide.trace(nets[kind], (x,), loss=lambda y: y.square().mean(), optimizer="adamw")


@pytest.fixture(scope="module", params=["toy", "plain", "in place"])
def step(request: pytest.FixtureRequest) -> Step:
    return make_step(tuple("abcde")) if request.param == "toy" else traced(request.param)


def tops(step: Step, keep: frozenset[int] | None = None, runs: dict[int, tuple[int, ...]] | None = None) -> list[int]:
    """Per moment the highest level of the blocks, once what ends with the moment before is gone."""
    past = history(step, keep, runs)
    of_moment: dict[int, list[Turn]] = {}
    for turn in past.turns:
        of_moment.setdefault(turn.moment, []).append(turn)
    level, top = 0, []
    for m in range(step.n_moments):
        turns = of_moment.get(m, [])
        n_before = next((k for k, t in enumerate(turns) if t.is_alloc), len(turns))
        highest = 0
        for k, turn in enumerate(turns):
            level += past.blocks[turn.block].nbytes * (1 if turn.is_alloc else -1)
            if turn.is_alloc or k >= n_before - 1:
                highest = max(highest, level)
        top.append(highest if turns else level)
    return top


def test_without_a_plan_the_blocks_peak_where_the_simulator_does(step: Step) -> None:
    past = history(step)
    assert past.peak()[0] == simulate(step).peak_bytes
    assert sum(past.blocks[b].nbytes for b in past.standing) == step.standing_bytes


@pytest.mark.parametrize("seed", range(12))
def test_under_any_plan_the_blocks_peak_where_the_simulator_does(step: Step, seed: int) -> None:
    plan = random_plan(step, seed) if seed else drop_everything(step)
    timeline = simulate(step, plan)
    past = history(step, plan.keep, dict(plan.runs))
    assert past.peak()[0] == timeline.peak_bytes
    for m, top in enumerate(tops(step, plan.keep, dict(plan.runs))):
        assert top <= timeline.level_bytes[m], f"moment {m}"
        if step.moments[m] >= 0:
            assert top == timeline.level_bytes[m], f"moment {m}"


def test_workspace_is_a_block_of_its_own() -> None:
    step = make_step()
    step = replace(step, workspace_bytes=tuple(1000 * k for k in range(len(step.ops))))
    assert history(step).peak()[0] == simulate(step).peak_bytes


def test_what_is_there_at_the_peak_adds_up_and_has_names() -> None:
    step = traced("in place")
    past = history(step)
    peak, at = past.peak()
    alive = past.alive(at)
    assert sum(past.blocks[b].nbytes for b in alive) == peak + step.standing_bytes
    kinds = {past.blocks[b].kind for b in alive}
    assert {Kind.PARAMETER, Kind.OPTIMIZER, Kind.KEPT} <= kinds
    assert Kind.RECOMPUTED not in kinds


def test_no_block_is_freed_twice_or_before_it_is_there(step: Step) -> None:
    plan = random_plan(step, 5)
    past = history(step, plan.keep, dict(plan.runs))
    there = set(past.standing)
    for turn in past.turns:
        assert (turn.block in there) != turn.is_alloc
        there ^= {turn.block}
