from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.planning.check import Rule, check
from lowtide.planning.frontiers import Frontiers
from lowtide.planning.simulate import keep_all
from lowtide.planning.step import Step
from tests.random_steps import Builder, Call, random_plan, steps, uniform_chain


def _rules(step: Step, keep: set[int], runs: dict[int, tuple[int, ...]]) -> list[Rule]:
    return [v.rule for v in check(step, keep, runs)]


def _asks(step: Step) -> list[int]:
    return [s.uses[0] for s in step.saves]


@given(steps(), st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_valid_plans_have_no_violations(step: Step, seed: int) -> None:
    assert check(step, keep_all(step), {}) == []
    keep, runs = random_plan(step, random.Random(seed))
    assert check(step, keep, runs) == []
    fronts = Frontiers(step)
    assert check(step, *fronts.lift([p for p in range(fronts.n) if fronts.allowed[p]])) == []


@given(steps(odd=False), st.integers(0, 1000), st.data())
@settings(max_examples=200, deadline=None)
def test_a_plan_that_lacks_a_run_or_a_kept_value_is_found_out_unless_it_was_superfluous(
    step: Step, seed: int, data: st.DataObject
) -> None:
    keep, runs = random_plan(step, random.Random(seed))
    places = [(m, k) for m, ops in runs.items() for k in range(len(ops))]
    if not places:
        return
    m, k = data.draw(st.sampled_from(places))
    less = {**runs, m: runs[m][:k] + runs[m][k + 1 :]}
    assert (check(step, keep, less) == []) == _works(step, keep, less)


def _works(step: Step, keep: frozenset[int], runs: dict[int, tuple[int, ...]]) -> bool:
    """By carrying it out: nothing is ever let go of."""
    there = set(keep)
    for m, what in enumerate(step.moments):
        if what >= 0:
            continue
        for o in runs.get(m, ()):
            if not all(r in there or step.is_external(r) for r in step.ops[o].reads):
                return False
            there |= set(step.ops[o].writes)
        v = step.saves[~what].value
        if v not in there and not step.is_external(v):
            return False
    return True


def test_ids_outside_of_the_step() -> None:
    step = uniform_chain(3)
    assert _rules(step, {99}, {}) == [Rule.IDS]
    assert _rules(step, {-1}, {}) == [Rule.IDS]
    assert _rules(step, set(), {99: (0,)}) == [Rule.IDS]
    assert _rules(step, set(), {_asks(step)[0]: (77,)}) == [Rule.IDS]
    assert "value 99" in str(check(step, {99}, {})[0])


def test_runs_stand_at_unpacks() -> None:
    step = uniform_chain(3)
    (found,) = check(step, {1, 2}, {0: (0,)})
    assert found.rule is Rule.MOMENT
    assert found.message == "the plan has runs at moment 0, which is the op aten.op0.default: runs stand at unpacks"


def test_only_forward_ops_run_again() -> None:
    step = uniform_chain(3)
    backward = step.n_forward + 1
    assert Rule.FORWARD in _rules(step, {1, 2}, {_asks(step)[0]: (backward,)})


def test_pinned_ops_do_not_run_and_their_values_are_kept() -> None:
    step = uniform_chain(3)
    ops = list(step.ops)
    ops[0] = replace(ops[0], pinned="it draws lots")
    step = replace(step, ops=tuple(ops))
    ask = _asks(step)
    found = check(step, {2}, {ask[0]: (0,)})
    assert [v.rule for v in found] == [Rule.PINNED_DROP, Rule.PINNED_RUN]
    assert found[0].message == "the plan drops value 1 (of aten.op0.default in m0), which must be kept: it draws lots"
    assert f"aten.op0.default in m0 at moment {ask[0]}, which must not run again: it draws lots" in found[1].message
    assert check(step, {1, 2}, {}) == []


def test_pinned_values_that_nobody_asks_for_may_go() -> None:
    b = Builder()
    x, y = b.standing(1), b.fresh(2)
    b.call(Call([x], [y], saves=[y], unused={0}, pinned="it is odd"))
    assert check(b.step(), set(), {}) == []


def test_overwritten_values_cannot_be_kept() -> None:
    b = Builder()
    x, y = b.standing(1), b.fresh(2)
    b.call(Call([x], [y]))
    z = b.next_version(y)
    b.call(Call([y], [z], inplace=[(y, z)], saves=[z]))
    step = b.step()
    (found,) = check(step, {y, z}, {})
    assert found.rule is Rule.OVERWRITTEN
    assert (
        found.message
        == f"the plan keeps value {y} (of aten.op0.default in m0), which aten.op1.default in m1 overwrites at moment 1"
    )
    # What the optimizer overwrites was there for all of backward.
    values = list(step.values)
    values[z] = replace(values[z], overwritten=len(step.ops) - 1)
    assert check(replace(step, values=tuple(values)), {z}, {}) == []


def test_runs_read_what_is_there() -> None:
    step = uniform_chain(4)
    ask = _asks(step)  # of ops 1, 2, 3 for values 1, 2, 3
    found = check(step, {1, 2}, {ask[2]: (1, 2)})
    assert found == []
    (found,) = check(step, {1}, {ask[2]: (2,), ask[1]: (1,)})
    assert found.rule is Rule.READS
    assert (found.moment, found.op, found.value) == (ask[2], 2, 2)
    assert "reads value 2 (of aten.op1.default in m1): neither kept nor recomputed before" in found.message


def test_what_was_made_by_an_earlier_run_is_there() -> None:
    step = uniform_chain(4)
    ask = _asks(step)
    assert check(step, set(), {ask[2]: (0, 1, 2)}) == []


def test_overwritten_externals_cannot_be_read() -> None:
    b = Builder()
    x = b.standing(1)
    y = b.fresh(2)
    b.call(Call([x], [y], saves=[y]))
    z = b.next_version(x)
    b.call(Call([x, y], [z], inplace=[(x, z)], pinned="it writes its input"))
    step = b.step()
    found = check(step, set(), {_asks(step)[0]: (0,)})
    assert [v.rule for v in found] == [Rule.READS]
    assert "aten.op1.default has overwritten it" in found[0].message


def test_every_unpack_is_answered() -> None:
    step = uniform_chain(3)
    (found,) = check(step, {2}, {})
    assert found.rule is Rule.ANSWER
    assert found.message == (
        f"the backward of aten.op1.default in m1 asks at moment {_asks(step)[0]} for value 1 "
        "(of aten.op0.default in m0), which is neither kept nor recomputed before"
    )


@pytest.mark.parametrize("keep", [{0, 1, 2}, {1, 2, 3}])
def test_keeping_more_than_is_needed_is_no_violation(keep: set[int]) -> None:
    assert check(uniform_chain(3), keep, {}) == []
