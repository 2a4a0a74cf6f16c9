from __future__ import annotations

import json
import time
from itertools import pairwise

import pytest

from lowtide.errors import InputError
from lowtide.planning.simulate import simulate
from lowtide.planning.solve.budget import Ground
from lowtide.planning.tradeoff import tradeoff
from tests.costed_steps import costed
from tests.random_steps import residual_net


def test_points_are_plans_and_none_is_worse_than_another() -> None:
    for seed in range(6):
        step = costed(seed, 14)
        curve = tradeoff(step, 6)
        assert curve.points[0].added_s == 0
        for p in curve.points:
            plan = curve.plan(p)
            assert (plan.peak_bytes, plan.added_s) == (p.peak_bytes, p.added_s)
            assert p.least_s <= p.added_s + 1e-9
            assert p.slowdown <= 0.5 + 1e-9
        for a, b in pairwise(curve.points):
            assert a.peak_bytes > b.peak_bytes
            assert a.added_s < b.added_s


def test_the_quickest_point_under_a_budget() -> None:
    curve = tradeoff(costed(4, 14, odd=False), 6)
    assert len(curve.points) > 2
    for p in curve.points:
        assert curve.under(p.peak_bytes) is p
    assert curve.under(10**9) is curve.points[0]
    with pytest.raises(InputError, match="no point of the curve is within 1 B: the least peak is"):
        curve.under(1)


def test_its_table_and_json() -> None:
    step = costed(4, 14, odd=False)
    curve = tradeoff(step, 5)
    text = repr(curve)
    assert len(text.splitlines()) == len(curve.points) + 3
    data = json.loads(json.dumps(curve.to_json()))
    assert (
        data["points"][0]["peak_bytes"]
        == simulate(step, Ground(step).lazy.lists(Ground(step).lazy.keep_all())).peak_bytes
    )
    assert data["step_s"] == step.total_seconds


def test_a_curve_takes_at_most_three_times_as_long_as_one_plan() -> None:
    step = residual_net(10)
    start = time.process_time()
    ground = Ground(step)
    ground.solve(ground.baseline_bytes // 2)
    one = time.process_time() - start
    start = time.process_time()
    curve = tradeoff(step, 20)
    assert time.process_time() - start <= 3 * one + 0.5
    assert len(curve.points) >= 8


@pytest.mark.parametrize(("points", "slowdown", "says"), [(1, 0.5, "at least 2"), (5, -1.0, "at least 0")])
def test_senseless_curves_are_refused(points: int, slowdown: float, says: str) -> None:
    with pytest.raises(InputError, match=says):
        tradeoff(residual_net(2), points, slowdown)
