from __future__ import annotations

import random

import numpy as np
import pytest

from lowtide.planning.account import Accountant, Row
from lowtide.planning.check import check
from lowtide.planning.frontiers import Frontiers
from lowtide.planning.simulate import simulate
from lowtide.planning.step import Step
from tests.random_steps import random_plan, random_step, residual_net


def accountant_of(step: Step) -> Accountant:
    return Accountant(Frontiers(step))


def row_of(step: Step, lists: tuple[frozenset[int], dict[int, tuple[int, ...]]]) -> Row:
    return Row.of(len(step.values), lists)


@pytest.mark.parametrize("odd", [False, True])
def test_accounts_say_what_the_simulator_says(odd: bool) -> None:
    for seed in range(300):
        step = random_step(seed, 3 + seed % 9, odd)
        accountant = accountant_of(step)
        rng = random.Random(seed)
        for _ in range(3):
            lists = random_plan(step, rng)
            timeline = simulate(step, lists)
            a = accountant.account(row_of(step, lists))
            assert a.peak == timeline.peak_bytes
            assert a.cost == timeline.recompute_flops
            # The highest place of each moment, its runs included.
            ends = a.moment_place
            begins = np.concatenate(([0], ends[:-1] + 1))
            highest = [int(a.level[i : j + 1].max()) for i, j in zip(begins, ends, strict=True)]
            assert highest == list(timeline.level_bytes)


def test_rows_and_lists_are_the_same_thing() -> None:
    step = residual_net(4)
    keep, runs = random_plan(step, random.Random(1))
    assert row_of(step, (frozenset(keep), runs)).lists() == (keep, {m: ops for m, ops in runs.items() if ops})


def test_idle_runs_go_and_nothing_else_changes_for_the_worse() -> None:
    shorter = 0
    for seed in range(200):
        step = random_step(seed, 3 + seed % 9)
        accountant = accountant_of(step)
        lists = random_plan(step, random.Random(seed))
        row = row_of(step, lists)
        less = accountant.without_idle(row)
        assert not check(step, *less.lists())
        assert accountant.without_idle(less).lists() == less.lists()
        assert accountant.account(less).cost <= accountant.account(row).cost
        shorter += len(less.ops) < len(row.ops)
    assert shorter > 10
