from __future__ import annotations

import random

from lowtide.planning.gauge import Reading
from lowtide.planning.refine import Refiner, is_better
from tests.costed_steps import costed, front_of_all, gauge_of, random_choice


def test_improving_keeps_within_the_budget_and_never_adds_time() -> None:
    better = 0
    for seed in range(60):
        gauge, rng = gauge_of(costed(seed, 10)), random.Random(seed)
        choice = random_choice(gauge.lazy, rng)
        reading = gauge.read(choice)
        budget = int(reading.peak_bytes * 1.1)
        new, changed = Refiner(gauge, budget, 300).improve(reading, choice)
        assert gauge.read(changed) == new
        assert new.peak_bytes <= budget
        assert new.added_s <= reading.added_s
        better += new.added_s < reading.added_s
    assert better > 25


def test_squeezing_comes_to_fit_where_something_does() -> None:
    fits = total = 0
    for seed in range(60):
        gauge = gauge_of(costed(seed, 7))
        if not 2 < len(gauge.lazy.free) < 7:
            continue
        for r in front_of_all(gauge):
            refiner = Refiner(gauge, r.peak_bytes, 500)
            new, choice = refiner.squeeze(gauge.lazy.keep_all())
            assert gauge.read(choice) == new
            total += 1
            fits += refiner.fits(new)
    assert total > 50
    assert fits / total > 0.7  # measured: 0.86


def test_annealing_finds_what_all_choices_have() -> None:
    gaps: list[float] = []
    for seed in range(40):
        gauge = gauge_of(costed(seed, 7))
        if not 2 < len(gauge.lazy.free) < 7:
            continue
        for r in front_of_all(gauge)[:3]:
            refiner = Refiner(gauge, r.peak_bytes, 1500)
            start = gauge.lazy.keep_all()
            new, choice = refiner.anneal(gauge.read(start), start, heat=0.1)
            assert gauge.read(choice) == new
            assert new.peak_bytes <= gauge.read(start).peak_bytes
            gaps.append((new.added_s - r.added_s) / max(1.0, r.added_s) if refiner.fits(new) else 1.0)
    assert len(gaps) > 20
    assert min(gaps) >= 0
    assert sum(gaps) / len(gaps) < 0.05


def test_the_same_seed_gives_the_same_choice() -> None:
    gauge = gauge_of(costed(5, 14))
    start = gauge.lazy.keep_all()
    budget = int(gauge.read(start).peak_bytes * 0.8)
    found = [Refiner(gauge, budget, 400).anneal(gauge.read(start), start) for _ in range(2)]
    assert found[0] == found[1]


def test_less_time_is_better_and_of_equal_time_the_lower_peak() -> None:
    assert is_better(Reading(9, 1.0), Reading(1, 2.0))
    assert is_better(Reading(8, 1.0), Reading(9, 1.0))
    assert not is_better(Reading(9, 1.0), Reading(9, 1.0))
    assert not is_better(Reading(1, 2.0), Reading(9, 1.0))
