from __future__ import annotations

import pytest

from lowtide.errors import InputError
from lowtide.planning.simulate import simulate
from lowtide.planning.solve.budget import Ground
from lowtide.planning.solve.deep import deep
from lowtide.planning.solve.least import least
from lowtide.planning.solve.solution import Solution
from lowtide.planning.step import Step
from tests.costed_steps import costed
from tests.random_steps import random_step, residual_net


def work(step: Step, solution: Solution) -> float:
    assert solution.plan is not None
    cost = step.seconds or tuple(op.flops for op in step.ops)
    return sum(cost[o] for ops in solution.plan.runs.values() for o in ops) / (sum(cost) or 1)


def test_it_is_never_above_either_search_and_keeps_to_the_limit() -> None:
    for seed in range(16):
        step = costed(seed, 8 + seed)
        found = least(step, 0.34)
        assert work(step, found) <= 0.34 + 1e-9
        assert found.peak_bytes <= deep(step, 0.34).peak_bytes
        assert found.peak_bytes <= Ground(step).least_peak(0.34).peak_bytes


def test_among_equals_it_adds_least() -> None:
    less = 0
    for seed in range(16):
        step = costed(seed, 20)
        found, first = least(step, 0.34), deep(step, 0.34)
        if found.peak_bytes == first.peak_bytes:
            assert work(step, found) <= first.added + 1e-9
            less += work(step, found) < first.added - 1e-9
    assert less >= 3


def test_steps_without_costs_are_limited_in_flops() -> None:
    for seed in range(10):
        step = random_step(seed, 12)
        found = least(step, 0.2)
        assert work(step, found) <= 0.2 + 1e-9
        assert found.plan is not None
        assert found.plan.step is step


def test_a_limit_of_nothing_and_a_negative_one() -> None:
    step = residual_net(3)
    assert least(step, 0.0).peak_bytes <= simulate(step).peak_bytes
    with pytest.raises(InputError, match=r"max_slowdown must be at least 0, not -1\.0"):
        least(step, -1.0)
