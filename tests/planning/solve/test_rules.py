"""The plain rules: `keep_all`, `every_block`, `sqrt`, `greedy`."""

from __future__ import annotations

import random

import pytest

from lowtide.errors import InputError
from lowtide.planning.chain import Chain
from lowtide.planning.solve import solve
from lowtide.planning.solve.greedy import Greedy, walk
from tests.random_chains import random_chain

SIXTEEN = Chain.from_arrays(a=[1] * 17)


def test_keep_all_and_every_block() -> None:
    assert solve(SIXTEEN, "keep_all").checkpoints == ()
    assert solve(SIXTEEN, "keep_all").recompute_cost == 0
    assert solve(SIXTEEN, "every_block").checkpoints == tuple(range(1, 16))
    assert solve(SIXTEEN, "every_block").recompute_cost == 15


def test_sqrt_cuts_into_equal_segments() -> None:
    assert solve(SIXTEEN, "sqrt").checkpoints == (4, 8, 12)
    assert solve(Chain.from_arrays(a=[1] * 13), "sqrt").checkpoints == (4, 8)  # 12 stages, 3 segments
    assert solve(Chain.from_arrays(a=[1] * 3), "sqrt").checkpoints == ()


def test_greedy_cuts_where_the_budget_is_spent() -> None:
    assert walk([1] * 10, 2) == [3, 6, 9]
    assert walk([5, 1, 1, 5, 1], 5) == [2, 4]
    assert walk([1] * 10, 100) == []


def test_greedy_is_near_the_best_on_equal_stages_and_searches() -> None:
    chain = Chain.from_arrays(a=[1] * 401)
    assert solve(chain, "greedy").peak_bytes <= 1.5 * solve(chain, "linear").peak_bytes
    rng = random.Random(1)
    finer = coarser = 0
    for _ in range(20):
        other = random_chain(rng, 60, 100)
        finer += solve(other, Greedy(grid=40)).peak_bytes
        coarser += solve(other, Greedy(grid=2)).peak_bytes
    assert finer < coarser


def test_greedy_takes_the_cheapest_walk_that_fits() -> None:
    assert solve(SIXTEEN, "greedy", budget=10**6).checkpoints == ()


def test_greedy_refuses_a_grid_of_one() -> None:
    with pytest.raises(InputError, match="grid is 1"):
        Greedy(grid=1)
