"""`revolve` and `bptt`: the number of runs against the recurrence, slots against what the schedule holds."""

from __future__ import annotations

import random
from functools import cache
from math import comb

import pytest

from lowtide.planning.chain import Chain
from lowtide.planning.rehearse import rehearse
from lowtide.planning.solve import solve
from lowtide.planning.solve.bptt import Bptt
from lowtide.planning.solve.revolve import Revolve
from tests.random_chains import random_chain


@cache
def fewest_runs(length: int, slots: int) -> int:
    """The recurrence, literally: run y ahead, hold, right part, left part; recording runs included."""
    if length == 1:
        return 1
    if slots == 1:
        return length * (length + 1) // 2
    return min(y + fewest_runs(length - y, slots - 1) + fewest_runs(y, slots) for y in range(1, length))


@pytest.mark.parametrize("solver", [Revolve, Bptt])
def test_fewest_runs(solver: type[Revolve | Bptt]) -> None:
    for length in range(1, 31):
        chain = Chain.from_arrays(a=[1] * (length + 1), i=[0] * length)
        for slots in range(1, 8):
            solution = solve(chain, solver(slots=slots))
            played = rehearse(chain, solution.schedule)
            assert sum(played.runs) == solution.stats["claimed_runs"] == fewest_runs(length, slots)
            assert played.peak_bytes <= slots  # one byte an activation, nothing else is stored


@pytest.mark.parametrize(("slots", "r"), [(1, 3), (2, 3), (3, 4), (5, 2)])
def test_binomial_chains_run_no_stage_more_than_r_times_ahead(slots: int, r: int) -> None:
    length = comb(slots + r, slots)
    for extra, most in ((0, r), (1, r + 1)):
        chain = Chain.from_arrays(a=[1] * (length + extra + 1))
        played = rehearse(chain, solve(chain, Revolve(slots=slots)).schedule)
        assert max(played.runs) - 1 == most  # the recording run aside


@pytest.mark.parametrize("name", ["revolve", "bptt"])
def test_slots_from_the_budget_fit_it(name: str) -> None:
    rng = random.Random(4)
    for _ in range(50):
        chain = random_chain(rng, 30, 50)
        least = solve(chain, Revolve(slots=1)).peak_bytes
        for budget in (least + 60, 2 * least, 10 * least):
            assert solve(chain, name, budget).peak_bytes <= budget


def test_long_chain_with_few_slots() -> None:
    chain = Chain.from_arrays(a=[1] * 5001)
    solution = solve(chain, Revolve(slots=12))
    assert solution.peak_bytes == 13  # and the input of the stage that is recorded
    assert max(rehearse(chain, solution.schedule).runs) <= 6
