from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.errors import PlanError
from lowtide.planning.check import check
from lowtide.planning.frontiers import Frontiers
from lowtide.planning.schedule import Action, handed_until, schedule
from lowtide.planning.step import Category, Op, Phase, Save, Step, Storage, Value
from tests.random_steps import Builder, Call, random_plan, steps, uniform_chain


def test_a_dropped_value_is_made_retained_and_handed_over() -> None:
    step = uniform_chain(4)  # op k saves its input; values 0 (input), 1, 2, 3, 4
    ask3 = step.saves[2].uses[0]  # op 3 asks for value 3
    order = schedule(step, {2}, {ask3: (2,), step.saves[0].uses[0]: (0,)})
    assert [e.moment for e in order.events] == [step.saves[k].uses[0] for k in (2, 0)]
    first, last = order.events
    assert first.actions == (Action(2, (3,), (), (2,)),)  # value 2 was held as a source, and goes after its last run
    assert first.ends_hold
    assert first.save == 2
    assert order.sources == {2}
    assert last.actions == (Action(0, (1,), (), ()),)
    assert last.ends_hold


def test_a_value_that_is_wanted_twice_is_held_in_between() -> None:
    b = Builder()
    x = b.standing(1)
    y = b.fresh(1)
    b.call(Call([x], [y], saves=[y]))
    z = b.fresh(1)
    b.call(Call([y], [z], saves=[y]))
    step = b.step()
    first, last = step.saves[1].uses[0], step.saves[0].uses[0]
    order = schedule(step, set(), {first: (0,)})
    assert [(e.moment, e.ends_hold) for e in order.events] == [(first, False), (last, True)]
    again = schedule(step, set(), {first: (0,), last: (0,)})
    assert [(e.moment, e.ends_hold) for e in again.events] == [(first, True), (last, True)]


def test_what_only_a_later_run_of_the_list_reads_goes_after_it() -> None:
    step = uniform_chain(4)
    order = schedule(
        step, set(), {step.saves[2].uses[0]: (0, 1, 2), step.saves[1].uses[0]: (0, 1), step.saves[0].uses[0]: (0,)}
    )
    assert order.events[0].actions == (Action(0, (1,), (), ()), Action(1, (2,), (), (1,)), Action(2, (3,), (), (2,)))


def test_an_in_place_op_consumes_what_nobody_needs_any_more() -> None:
    b = Builder()
    x = b.standing(1)
    y = b.fresh(8)
    b.call(Call([x], [y]))
    z = b.next_version(y)
    b.call(Call([y], [z], inplace=[(y, z)], saves=[z]))
    step = b.step()
    m = step.saves[0].uses[0]
    assert schedule(step, set(), {m: (0, 1)}).events[0].actions[1] == Action(1, (z,), (y,), ())


def test_an_in_place_op_works_on_a_copy_of_what_is_needed_later() -> None:
    b = Builder()
    x = b.standing(1)
    y = b.fresh(8)
    b.call(Call([x], [y]))
    side = b.fresh(2)
    b.call(Call([y], [side], saves=[side]))
    z = b.next_version(y)
    b.call(Call([y], [z], inplace=[(y, z)], saves=[z]))
    step = b.step()
    ask_z, ask_side = step.saves[1].uses[0], step.saves[0].uses[0]
    order = schedule(step, set(), {ask_z: (0, 2), ask_side: (1,)})
    assert order.events[0].actions == (Action(0, (y,), (), ()), Action(2, (z,), (), ()))
    assert order.events[1].actions == (Action(1, (side,), (), (y,)),)


def _asked_twice(release: int) -> Step:
    """One op whose only save is asked for at moments 1 and 4 of [op, ask, backward, backward of another, ask, ...]."""
    op = Op("aten.op", Phase.FORWARD, "", (0,), (1,), (), 0, 0, 0, "", False)
    back = [Op("aten.back", Phase.BACKWARD, "", (), (), (), 0, 0, m, "", False) for m in (2, 3, 5)]
    return Step(
        ops=(op, *back),
        values=(Value(0, 0, -1, -1), Value(1, 0, 0, -1)),
        storages=(Storage(1, Category.INPUT, -1, 6, True), Storage(8, Category.ACTIVATION, 0, 1, False)),
        saves=(Save(1, 0, (1, 4), release),),
        moments=(0, ~0, 1, 2, ~0, 3),
        positions=(0, 0, 0, -1, 0, 0),
        n_forward=1,
    )


def test_a_retained_graph_lets_go_of_what_it_was_handed_when_the_node_is_done() -> None:
    step = _asked_twice(release=6)
    assert handed_until(step, 0, 0) == 3
    assert handed_until(step, 0, 1) == 6


def test_a_value_that_nothing_makes_is_named() -> None:
    step = uniform_chain(3)
    with pytest.raises(PlanError, match=r"value 1 \(aten.op0.default\) is wanted in backward"):
        schedule(step, set(), {step.saves[1].uses[0]: (1,)})


@given(steps(), st.integers(0, 1000))
@settings(max_examples=300, deadline=None)
def test_carrying_a_schedule_out_always_finds_what_it_needs(step: Step, seed: int) -> None:
    """A plain interpreter: what is retained must be there when read, and nothing is left in the end."""
    keep, runs = random_plan(step, random.Random(seed))
    assert check(step, keep, runs) == []
    order = schedule(step, keep, runs)
    sources, held = set(order.sources), set[int]()
    events = {e.moment: e for e in order.events}
    for m, what in enumerate(step.moments):
        if what >= 0:
            continue
        value = step.saves[~what].value
        event = events.get(m)
        for o, retain, consume, free in event.actions if event else ():
            for r in step.ops[o].reads:
                assert step.is_external(r) or r in held or r in sources
            assert not held & set(retain), "a value that is there is made again and replaced"
            held -= set(consume)
            held |= set(retain)
            for v in free:
                (sources if v in keep else held).remove(v)
        assert step.is_external(value) or value in keep or value in held
        if event and event.ends_hold:
            held.remove(value)
    assert not held
    assert not sources


@given(steps())
@settings(max_examples=100, deadline=None)
def test_lists_of_cuts_can_be_scheduled(step: Step) -> None:
    fronts = Frontiers(step)
    cuts = [p for p in range(1, fronts.n) if fronts.allowed[p]]
    schedule(step, *fronts.lift(cuts))
