from __future__ import annotations

from itertools import pairwise

import numpy as np

from lowtide.planning.check import check
from lowtide.planning.frontiers import Frontiers
from lowtide.planning.prices import Market
from lowtide.planning.simulate import simulate
from lowtide.planning.stretches import Regime, Stretches, cut_positions, pairs, regime_of
from tests.costed_steps import costed, gauge_of
from tests.random_steps import residual_net, uniform_chain


def program(step_fronts: Frontiers, slots: int = 200) -> Stretches:
    top = simulate(step_fronts.step).peak_bytes
    return Stretches(step_fronts, pairs(Market(step_fronts).corners(8)), top, slots)


def test_cuts_are_allowed_and_few_enough() -> None:
    fronts = Frontiers(residual_net(40))
    every = cut_positions(fronts, 1000)
    assert every
    assert all(fronts.allowed[p] for p in every)
    few = cut_positions(fronts, 10)
    assert 5 <= len(few) <= 11
    assert set(few) <= set(every)


def test_promised_time_falls_with_the_budget() -> None:
    for seed in range(20):
        table = program(Frontiers(costed(seed, 12)))
        least = table.best[0]
        assert np.all(np.diff(least[np.isfinite(least)]) <= 1e-12)


def test_choices_are_plans_and_mostly_keep_their_promise() -> None:
    """The program's figures are guesses; on chains without oddities they are good ones."""
    kept_promise = total = 0
    for seed in range(40):
        step = costed(seed, 12, odd=False)
        gauge = gauge_of(step)
        table = program(gauge.lazy.fronts)
        for slot in range(0, table.width, 10):
            choice = table.choice(slot)
            if choice is None:
                continue
            assert not check(step, *gauge.lazy.lists(choice))
            reading = gauge.read(choice)
            total += 1
            kept_promise += reading.peak_bytes <= (slot + 1) * table.unit
    assert kept_promise / total > 0.75  # measured: 0.85


def test_a_uniform_chain_is_cut_about_evenly() -> None:
    """30 equal ops of 100 bytes each; at little memory the program cuts into about equal pieces."""
    step = uniform_chain(30)
    fronts = Frontiers(step)
    table = program(fronts, slots=1000)
    slot = int(1300 / table.unit)  # 1 of the 32 that keeping all takes is the gradient
    stretches = table.stretches(slot)
    assert len(stretches) >= 3
    assert stretches[0][0] == 0
    assert stretches[-1][1] == 30
    assert all(a[1] == b[0] for a, b in pairwise(stretches))
    gauge = gauge_of(step)
    choice = table.choice(slot)
    assert choice is not None
    assert gauge.read(choice).peak_bytes <= 1400


def test_a_choice_as_regime_everywhere_is_that_choice() -> None:
    step = costed(3, 12, odd=False)
    gauge = gauge_of(step)
    everything = regime_of(gauge.lazy, gauge.lazy.keep_all())
    top = simulate(step).peak_bytes
    table = Stretches(gauge.lazy.fronts, [everything, Regime(frozenset(), frozenset())], top + 10, 100)
    choice = table.choice(table.width - 1)
    assert choice is not None
    assert gauge.added_s(choice) == 0
