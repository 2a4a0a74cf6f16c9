from __future__ import annotations

import random

from lowtide.planning.check import check
from lowtide.planning.frontiers import Frontiers
from lowtide.planning.lazy import Choice, Lazy
from lowtide.planning.simulate import simulate
from tests.costed_steps import costed, random_choice
from tests.random_steps import chain_step, residual_net, uniform_chain


def test_every_choice_is_a_plan() -> None:
    for seed in range(300):
        step = costed(seed, 3 + seed % 9)
        lazy, rng = Lazy(Frontiers(step)), random.Random(seed)
        for _ in range(4):
            keep, runs = lazy.lists(random_choice(lazy, rng))
            assert check(step, keep, runs) == []


def test_keeping_all_runs_nothing() -> None:
    for seed in range(50):
        step = costed(seed)
        lazy = Lazy(Frontiers(step))
        keep, runs = lazy.lists(lazy.keep_all())
        assert runs == {}
        assert simulate(step, (keep, runs)).peak_bytes <= simulate(step).peak_bytes


def test_a_chain_that_keeps_nothing_runs_when_it_is_asked() -> None:
    step = uniform_chain(4)  # four ops that save what they read, the input is external
    lazy = Lazy(Frontiers(step))
    keep, runs = lazy.lists(Choice(frozenset(), frozenset()))
    assert keep == frozenset()
    assert [ops for _, ops in sorted(runs.items())] == [(0, 1, 2)]  # what is then held serves the others


def test_again_runs_for_each_that_asks() -> None:
    step = uniform_chain(4)
    lazy = Lazy(Frontiers(step))
    _, runs = lazy.lists(Choice(frozenset(), frozenset(lazy.free)))
    assert [ops for _, ops in sorted(runs.items())] == [(0, 1, 2), (0, 1), (0,)]


def test_what_is_kept_but_not_wanted_is_not_kept() -> None:
    step = residual_net(2)
    lazy = Lazy(Frontiers(step))
    everything = lazy.keep_all()
    keep, _ = lazy.lists(Choice(frozenset(lazy.free), frozenset()))
    assert keep == lazy.lists(everything)[0]


def test_held_values_are_made_once_and_others_each_time() -> None:
    step = chain_step(a=[1] * 7, s=[0] * 6, i=[1] * 6, o=[0] * 6, t=[1] * 6)
    lazy = Lazy(Frontiers(step))
    once, always = (
        lazy.timeline(Choice(frozenset(), again)) for again in (frozenset[int](), frozenset(lazy.fronts.facts))
    )
    assert (once.recompute_ops, always.recompute_ops) == (5, 15)  # 5 values; 5 + 4 + 3 + 2 + 1
    assert always.peak_bytes < once.peak_bytes
