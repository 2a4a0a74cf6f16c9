from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.planning.holders import OPTIMIZER
from lowtide.planning.simulate import simulate
from lowtide.planning.step import Category, Step
from tests.random_steps import Builder, Call, random_plan, steps


@given(steps(), st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_modules_add_up_to_the_level_at_every_moment(step: Step, seed: int) -> None:
    rng = random.Random(seed)
    step = replace(step, workspace_bytes=tuple(rng.choice([0, 0, 7]) for _ in step.ops))
    for t in (simulate(step), simulate(step, random_plan(step, rng))):
        for m in range(step.n_moments):
            everything = t.level_bytes[m] + t.standing_bytes
            assert sum(t.by_module(m).values()) == everything
            assert sum(t.by_category(m).values()) == everything


def test_bytes_belong_to_the_module_that_made_them() -> None:
    b = Builder()
    weight = b.standing(1000)
    y = b.fresh(50)
    b.call(Call([weight], [y], saves=[y]))  # m0
    z = b.fresh(20)
    b.call(Call([y], [z], saves=[z]))  # m1
    b.call(Call([z], [b.fresh(5)]))  # m2
    step = b.step()
    t = simulate(step)
    at_the_end_of_forward = t.by_module(step.ops[2].moment)
    assert at_the_end_of_forward["m0"] == 1000 + 50
    assert at_the_end_of_forward["m1"] == 20
    m = step.saves[1].uses[0]  # z is asked for, and made again from y
    planned = simulate(step, (frozenset({y}), {m: (1,)}))
    before, then = planned.by_module(m - 1), planned.by_module(m)
    assert before["m0"] == then["m0"] == 1050
    assert (before.get("m1", 0), then["m1"]) == (0, 20)


def test_state_of_the_optimizer_has_a_row_of_its_own() -> None:
    b = Builder()
    b.call(Call([b.standing(10), b.standing(30, Category.OPTIMIZER)], [b.fresh(1)]))
    assert simulate(b.step()).by_module(0)[OPTIMIZER] == 30
