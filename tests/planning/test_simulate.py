from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.planning.frontiers import Frontiers
from lowtide.planning.judge import judge
from lowtide.planning.schedule import handed_until, schedule
from lowtide.planning.simulate import describe_moment, keep_all, simulate
from lowtide.planning.step import Category, Step
from tests.random_steps import Builder, Call, random_plan, random_step, residual_net, steps, uniform_chain


def test_a_chain_by_hand_without_a_plan() -> None:
    # 3 ops of 100 bytes that save their inputs (the first is external); gradients of 100 bytes.
    t = simulate(uniform_chain(3))
    # forward: the output; input and output (the input saved as well) ...
    assert t.level_bytes[:3] == (100, 200, 300)
    # backward: the seed, beside two saved values; op 2 asks, then has two gradients; op 1 asks, ...
    assert t.level_bytes[3:] == (300, 300, 400, 200, 300, 100)
    assert t.kept_bytes[3:] == (200, 200, 200, 100, 100, 0)
    assert (t.peak_bytes, t.peak_moment) == (400, 5)
    assert (t.recompute_ops, t.recompute_flops) == (0, 0)
    assert t.total_peak_bytes == 400 + t.standing_bytes == 500


def test_a_chain_by_hand_with_a_plan() -> None:
    step = uniform_chain(3)
    ask = [s.uses[0] for s in step.saves]  # op 1, op 2
    t = simulate(step, (frozenset[int](), {ask[1]: (0, 1), ask[0]: (0,)}))
    assert t.level_bytes[:3] == (100, 200, 200)
    assert t.recomputed_bytes[3:] == (0, 200, 100, 100, 100, 0)
    assert t.level_bytes[3:] == (100, 300, 300, 200, 300, 100)
    assert t.peak_bytes == 300
    assert (t.recompute_ops, t.recompute_flops) == (3, 10 + 11 + 10)


def test_kept_sources_go_after_the_last_run_that_reads_them() -> None:
    b = Builder()
    x = b.standing(1)
    y = b.fresh(50)
    b.call(Call([x], [y]))
    z = b.fresh(20)
    b.call(Call([y], [z], saves=[z]))
    w = b.fresh(5)
    b.call(Call([z], [w]))
    step = b.step()
    m = step.saves[0].uses[0]
    t = simulate(step, (frozenset({y}), {m: (1,)}))
    assert t.kept_bytes[m - 1] == 50
    assert t.kept_bytes[m] == 50
    assert t.recomputed_bytes[m] == 20
    assert t.kept_bytes[m + 1] == 0
    assert t.recomputed_bytes[m + 1] == 20


def test_a_run_counts_all_outputs_scratch_and_copies() -> None:
    b = Builder()
    x = b.standing(1)
    y, mean = b.fresh(50), b.fresh(7)
    b.call(Call([x], [y, mean], saves=[mean], scratch=3))
    z = b.next_version(y)
    b.call(Call([y], [z], inplace=[(y, z)], saves=[z]))
    step = b.step()
    ask_mean, ask_z = step.saves[0].uses[0], step.saves[1].uses[0]
    keep = frozenset[int]()
    t = simulate(step, (keep, {ask_z: (0, 1), ask_mean: (0,)}))
    assert t.recomputed_bytes[ask_z] == 50 + 7 + 3  # consumed in place, so z takes no bytes of its own
    assert t.recomputed_bytes[ask_mean] == 50 + 7 + 3  # y comes and goes
    # Where z is wanted a second time, its old version y is copied the first time.
    again = Builder()
    x = again.standing(1)
    y = again.fresh(50)
    again.call(Call([x], [y]))
    side = again.fresh(7)
    again.call(Call([y], [side], saves=[side]))
    z = again.next_version(y)
    again.call(Call([y], [z], inplace=[(y, z)], saves=[z]))
    step = again.step()
    ask_side, ask_z = step.saves[0].uses[0], step.saves[1].uses[0]
    t = simulate(step, (keep, {ask_z: (0, 2), ask_side: (1,)}))
    assert t.recomputed_bytes[ask_z] == 100


def test_a_value_that_lives_anyway_is_kept_for_nothing() -> None:
    b = Builder()
    x = b.standing(1)
    y = b.fresh(50)
    b.hold[b.values[y][0]] = -2
    b.call(Call([x], [y], saves=[y]))
    step = b.step()
    kept, dropped = simulate(step), simulate(step, (frozenset[int](), {step.saves[0].uses[0]: (0,)}))
    assert max(kept.kept_bytes) == 0
    assert dropped.peak_bytes == kept.peak_bytes + 50  # a recomputed value has a storage of its own


@dataclass(eq=False)
class _Block:
    """An allocation of the reference simulator, alive while anybody holds it."""

    nbytes: int
    until: list[int] = field(default_factory=list[int])  # moments before which somebody holds it
    tape: bool = False

    def alive(self, m: int) -> bool:
        return self.tape or any(m < u for u in self.until)


def _level(blocks: set[_Block], m: int) -> int:
    return sum(b.nbytes for b in blocks if b.alive(m))


def _reference(step: Step, keep: frozenset[int], runs: dict[int, tuple[int, ...]]) -> list[int]:
    """Highest level per moment, by holding every block and summing up who is alive, again and again."""
    order = schedule(step, keep, runs)
    events = {e.moment: e for e in order.events}
    natural = {i: _Block(s.nbytes, [s.death]) for i, s in enumerate(step.storages) if s.birth >= 0}
    kept: dict[int, _Block] = {}
    for v in keep:
        i = step.values[v].storage
        if not step.storages[i].external:
            kept[v] = natural[i]
            natural[i].until += [step.saves[s].release for s in step.saves_of.get(v, ())]
            natural[i].tape = v in order.sources
    made: dict[int, _Block] = {}
    blocks: set[_Block] = set()
    levels: list[int] = []
    for m, what in enumerate(step.moments):
        blocks |= {natural[i] for i, s in enumerate(step.storages) if s.birth == m}

        top = _level(blocks, m)
        event = events.get(m)
        for o, retain, consume, free in event.actions if event else ():
            for v in consume:
                made.pop(v).tape = False
            new = {
                w: _Block(step.nbytes(w), tape=True)
                for w in step.ops[o].writes
                if not step.storages[step.values[w].storage].external
            }
            blocks |= set(new.values())
            top = max(top, _level(blocks, m) + step.ops[o].scratch_bytes)
            for w, block in new.items():
                if w in retain:
                    made[w] = block
                else:
                    block.tape = False
            for v in free:
                (kept[v] if v in keep else made.pop(v)).tape = False
            top = max(top, _level(blocks, m))
        if what < 0 and event:
            v = step.saves[~what].value
            if v in made:
                made[v].until.append(handed_until(step, ~what, step.saves[~what].uses.index(m)))
                if event.ends_hold:
                    made.pop(v).tape = False
        levels.append(top)
    return levels


@given(steps(), st.integers(0, 1000))
@settings(max_examples=400, deadline=None)
def test_levels_are_those_of_a_simulator_that_holds_every_block(step: Step, seed: int) -> None:
    keep, runs = random_plan(step, random.Random(seed))
    t = simulate(step, (keep, runs))
    assert list(t.level_bytes) == _reference(step, keep, runs)
    assert t.peak_bytes == max(t.level_bytes) == t.level_bytes[t.peak_moment]
    for m in range(step.n_moments):
        assert t.level_bytes[m] == step.base_bytes[m] + t.kept_bytes[m] + t.recomputed_bytes[m]


@given(steps())
@settings(max_examples=100, deadline=None)
def test_categories_add_up_at_every_moment(step: Step) -> None:
    t = simulate(step)
    for m in range(step.n_moments):
        assert sum(t.by_category(m).values()) == t.level_bytes[m] + t.standing_bytes


def test_a_plan_and_its_lists_mean_the_same() -> None:
    step = random_step(3)
    keep, runs = Frontiers(step).lift([2])
    assert simulate(step, judge(step, keep, runs, "test", "")) == simulate(step, (keep, runs))
    assert simulate(step) == simulate(step, (keep_all(step), {}))


def test_categories_and_json() -> None:
    t = simulate(residual_net(2))
    assert set(t.by_category(t.peak_moment)) == set(Category)
    assert json.loads(json.dumps(t.to_json()))["peak_bytes"] == t.peak_bytes
    assert "peak" in repr(t)
    assert max(len(line) for line in repr(t).splitlines()) <= 140


def test_moments_are_described_by_their_op_and_module() -> None:
    step = uniform_chain(2)
    assert describe_moment(step, 0) == "forward of m0 (aten.op0.default)"
    assert describe_moment(step, step.saves[0].uses[0]) == "backward of m1 (aten.op1.default)"
    assert describe_moment(step, step.n_moments - 1) == "backward of m0 (aten.op0_backward.default)"


def test_a_step_of_five_thousand_ops_takes_less_than_a_fifth_of_a_second() -> None:
    step = residual_net(700)
    assert step.n_forward > 4900
    lists = Frontiers(step).lift(range(7, step.n_forward, 70))
    assert lists[1]
    best = min(_seconds(step, lists) for _ in range(3))
    assert best < 0.2


def _seconds(step: Step, lists: tuple[frozenset[int], dict[int, tuple[int, ...]]]) -> float:
    start = time.process_time()
    simulate(step, lists)
    return time.process_time() - start
