from __future__ import annotations

import random

from lowtide.planning.simulate import simulate
from tests.costed_steps import costed, gauge_of, random_choice


def test_it_says_what_the_simulator_says_at_every_moment() -> None:
    for seed in range(400):
        step = costed(seed, 3 + seed % 12)
        gauge, rng = gauge_of(step), random.Random(seed)
        for _ in range(4):
            choice = random_choice(gauge.lazy, rng)
            timeline = simulate(step, gauge.lazy.lists(choice))
            level, added_s = gauge.levels(choice)
            assert tuple(level.tolist()) == timeline.level_bytes
            assert added_s == gauge.added_s(choice) == timeline.added_s
            assert gauge.read(choice) == (timeline.peak_bytes, timeline.added_s)
