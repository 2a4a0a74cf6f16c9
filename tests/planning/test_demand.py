from __future__ import annotations

import random

from lowtide.planning.check import check
from lowtide.planning.demand import on_demand
from lowtide.planning.frontiers import Frontiers
from lowtide.planning.simulate import keep_all, simulate
from tests.random_steps import chain_step, random_step


def test_any_choice_makes_a_plan() -> None:
    for seed in range(200):
        step = random_step(seed, 3 + seed % 9)
        fronts, rng = Frontiers(step), random.Random(seed)
        keep = {v for v in fronts.facts if rng.random() < 0.3 and step.values[v].overwritten < 0}
        since = {v: rng.randrange(step.n_moments) for v in fronts.facts}
        assert not check(step, *on_demand(fronts, keep, since)), seed


def test_nothing_is_run_if_all_is_kept() -> None:
    step = chain_step(a=[1] * 7, s=[2] * 6, i=[1] * 6, o=[0] * 6, t=[1] * 6)
    keep, runs = on_demand(Frontiers(step), keep_all(step))
    assert runs == {}
    assert keep == keep_all(step)


def test_held_values_are_made_once_and_others_each_time() -> None:
    step = chain_step(a=[1] * 7, s=[0] * 6, i=[1] * 6, o=[0] * 6, t=[1] * 6)
    fronts = Frontiers(step)
    once = simulate(step, on_demand(fronts, ()))
    always = simulate(step, on_demand(fronts, (), dict.fromkeys(fronts.facts, step.n_moments)))
    assert (once.recompute_ops, always.recompute_ops) == (5, 15)  # 5 values; 5 + 4 + 3 + 2 + 1
    assert always.peak_bytes < once.peak_bytes
    # Held from the moment on at which backward asks for the third.
    third = sorted(s.uses[0] for s in step.saves if s.uses)[2]
    some = simulate(step, on_demand(fronts, (), dict.fromkeys(fronts.facts, third)))
    assert some.recompute_ops == 5 + 4 + 3
