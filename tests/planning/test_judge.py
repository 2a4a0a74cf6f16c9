from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.errors import PlanError
from lowtide.planning.bound import bound
from lowtide.planning.holding import holding_bound
from lowtide.planning.judge import judge
from lowtide.planning.plan import Plan
from lowtide.planning.simulate import simulate
from lowtide.planning.step import Step
from tests.random_steps import random_plan, steps, uniform_chain


@given(steps(), st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_figures_come_from_the_judges(step: Step, seed: int) -> None:
    keep, runs = random_plan(step, random.Random(seed))
    plan = judge(step, keep, runs, "test", "feasible")
    t = simulate(step, (keep, runs))
    assert (plan.peak_bytes, plan.total_peak_bytes) == (t.peak_bytes, t.peak_bytes + step.standing_bytes)
    assert (plan.recompute_ops, plan.recompute_flops) == (t.recompute_ops, t.recompute_flops)
    assert plan.recompute_ops == sum(map(len, runs.values()))
    assert plan.baseline_peak_bytes == simulate(step).peak_bytes
    floor = holding_bound(step, t.peak_bytes)
    assert (plan.lower_bound_bytes, plan.bound_op) == (floor.bytes, floor.describe(step))
    assert bound(step).bytes <= floor.bytes <= t.peak_bytes
    assert (plan.solver, plan.status) == ("test", "feasible")
    assert Plan.from_json(plan.to_json()) == plan


def test_a_plan_that_breaks_the_rules_is_refused_with_its_first_violation() -> None:
    step = uniform_chain(4)
    with pytest.raises(PlanError, match=r"asks at moment \d+ for value 3 .* \(and 1 more\)$"):
        judge(step, {2}, {}, "test", "")


def test_empty_lists_are_left_out() -> None:
    step = uniform_chain(2)
    assert judge(step, [1], {step.saves[0].uses[0]: ()}, "test", "").runs == {}
