"""`lowtide.plan`: what its limits mean, and which go together."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import lowtide
from lowtide.errors import InputError
from lowtide.planning.step import Step


@pytest.fixture(scope="module")
def step() -> Step:
    with torch.device("meta"):
        layers = [m for _ in range(6) for m in (nn.Linear(64, 64), nn.Tanh(), nn.LayerNorm(64))]
        return lowtide.trace(nn.Sequential(*layers), (torch.empty(512, 64),))


def added(plan: lowtide.Plan) -> float:
    return plan.recompute_flops / plan.step.total_flops


def test_one_more_forward_is_the_limit_unless_another_is_given(step: Step) -> None:
    default, free = lowtide.plan(step), lowtide.plan(step, max_slowdown=None)
    assert added(default) <= 0.34
    assert free.peak_bytes <= default.peak_bytes < default.baseline_peak_bytes


def test_no_op_runs_more_often_than_allowed(step: Step) -> None:
    plan = lowtide.plan(step, max_recompute=1)
    runs = [op for ops in plan.runs.values() for op in ops]
    assert runs
    assert len(runs) == len(set(runs))


def test_a_limit_on_time_takes_the_better_of_both_searches(step: Step) -> None:
    from lowtide.planning.cost import roofline
    from lowtide.planning.solve.on_steps import Budget, Deep

    timed = roofline(step, "a100")
    peaks = [lowtide.solve(timed, s).peak_bytes for s in (Deep(max_slowdown=0.2), Budget(max_slowdown=0.2))]
    assert lowtide.plan(timed, max_slowdown=0.2).peak_bytes == min(peaks)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"budget": "60%", "max_slowdown": 0.1}, "limit memory or work"),
        ({"solver": "linear", "max_recompute": 1}, "give such settings to the solver object"),
        ({"max_slowdown": -1.0}, "at least 0"),
        ({"max_recompute": 0}, "at least 1"),
    ],
)
def test_limits_that_make_no_sense_are_one_sentence(step: Step, limits: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        lowtide.plan(step, **limits)
