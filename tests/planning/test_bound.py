from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.planning.bound import Bound, bound
from lowtide.planning.simulate import simulate
from lowtide.planning.step import Step
from tests.random_steps import Builder, Call, random_plan, steps, uniform_chain


@given(steps(), st.integers(0, 1000))
@settings(max_examples=500, deadline=None)
def test_no_plan_is_below_it(step: Step, seed: int) -> None:
    least = bound(step).bytes
    assert least >= max(step.base_bytes)
    assert simulate(step).peak_bytes >= least
    assert simulate(step, random_plan(step, random.Random(seed))).peak_bytes >= least


def test_a_chain_by_hand() -> None:
    # Backward of an op: what it saved and two gradients.
    step = uniform_chain(5)
    found = bound(step)
    assert found.bytes == 300
    assert found.describe(step) == "backward of m4 (aten.op4_backward.default)"
    assert step.moments[found.moment] == found.op


def test_what_is_alive_anyway_is_not_counted_twice() -> None:
    b = Builder()
    x, y = b.standing(1), b.fresh(50)
    b.hold[b.values[y][0]] = -2
    b.call(Call([x], [y], saves=[y], transient=10))
    step = b.step()
    assert bound(step).bytes == 50 + 50 + 10  # y, its gradient, the transient
    assert simulate(step).peak_bytes == 110


def test_pinned_values_count_from_their_natural_death_on() -> None:
    b = Builder()
    x, y = b.standing(1), b.fresh(50)
    b.call(Call([x], [y], saves=[y]))
    z = b.fresh(60)
    b.call(Call([y], [z]))
    w = b.fresh(200)
    b.call(Call([z], [w]))
    step = b.step()
    free = bound(step)
    ops = (replace(step.ops[0], pinned="it is odd"), *step.ops[1:])
    pinned = bound(replace(step, ops=ops))
    assert (free.bytes, pinned.bytes) == (260, 310)
    assert pinned.bytes == simulate(step).peak_bytes


def test_two_versions_of_a_storage_need_memory_of_their_own() -> None:
    b = Builder()
    x, y = b.standing(1), b.fresh(50)
    b.call(Call([x], [y], saves=[y]))
    z = b.next_version(y)
    b.hold[b.values[y][0]] = -2
    b.call(Call([y], [z], inplace=[(y, z)], saves=[z]))
    assert bound(b.step()).bytes == 50 + 50 + 50  # z naturally, y made anew, a gradient


def test_an_empty_step() -> None:
    step = Step((), (), (), (), (), (), 0)
    assert bound(step) == Bound(0, 0, -1)
    assert bound(step).describe(step) == ""
    assert simulate(step).peak_bytes == 0
    assert repr(simulate(step))
