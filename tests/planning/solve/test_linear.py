"""`linear` and `quadratic` against all checkpoint sets; long chains; what a budget buys."""

from __future__ import annotations

import random
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given

from lowtide.planning.chain import Chain
from lowtide.planning.rehearse import rehearse_checkpoints
from lowtide.planning.solve import Status, solve
from lowtide.planning.solve.linear import least_peak
from tests.random_chains import chains, checkpoint_sets, random_chain


def check(chain: Chain) -> None:
    best = min(chain.peak_bytes(c) for c in checkpoint_sets(chain.n))
    for name in ("linear", "quadratic"):
        solution = solve(chain, name)
        assert solution.peak_bytes == best
        assert solution.stats["claimed_peak_bytes"] == best
        assert solution.status is Status.LEAST_PEAK


@given(chains(longest=9))
def test_least_of_all_sets(chain: Chain) -> None:
    check(chain)


def test_ten_thousand_chains() -> None:
    rng = random.Random(2023)
    for _ in range(10_000):
        check(random_chain(rng, rng.randint(1, 7), rng.choice((1, 3, 8, 100))))


def test_longer_brute_force() -> None:
    rng = random.Random(9)
    for _ in range(60):
        check(random_chain(rng, 11, rng.choice((3, 50))))


def test_equals_quadratic_on_400_stages() -> None:
    rng = random.Random(400)
    for largest in (1, 2, 10, 1000, 10**9):
        for _ in range(8):
            chain = random_chain(rng, 400, largest)
            assert solve(chain, "linear").peak_bytes == solve(chain, "quadratic").peak_bytes


def test_equals_quadratic_where_sizes_rise_fall_or_jump() -> None:
    n = 300
    ramp = list(range(1, n + 2))
    spikes = [1 + 1000 * (k % 17 == 0) for k in range(n + 1)]
    for a in (ramp, ramp[::-1], spikes):
        for t in (a[1:], a[:-1], [0] * n, spikes[1:]):
            chain = Chain.from_arrays(a=a, t=t)
            assert solve(chain, "linear").peak_bytes == solve(chain, "quadratic").peak_bytes


def test_equals_quadratic_on_20000_stages() -> None:
    chain = random_chain(random.Random(20), 20_000, 10**8)
    assert solve(chain, "linear").peak_bytes == solve(chain, "quadratic").peak_bytes


@pytest.mark.parametrize("n", [100, 1000, 10_000])
def test_unit_chains_need_sqrt_2n_where_equal_segments_need_2_sqrt_n(n: int) -> None:
    chain = Chain.from_arrays(a=[1] * (n + 1))
    assert solve(chain).peak_bytes == pytest.approx((2 * n) ** 0.5, abs=2)
    first = min(chain.first_peak_bytes(solve(chain, name).checkpoints) for name in ("sqrt", "cubic"))
    assert first == pytest.approx(2 * n**0.5, abs=2)


@given(chains(longest=8))
def test_budget_recomputes_least(chain: Chain) -> None:
    judged = [rehearse_checkpoints(chain, c) for c in checkpoint_sets(chain.n)]
    for budget in {x.peak_bytes for x in judged if x.peak_bytes > 0}:
        solution = solve(chain, "linear", budget)
        assert solution.peak_bytes <= budget
        assert solution.recompute_cost == min(x.recompute_cost for x in judged if x.peak_bytes <= budget)
        assert solution.status is Status.LEAST_COST
    least = min(x.peak_bytes for x in judged)
    if least > 1:
        solution = solve(chain, "linear", least - 1)
        assert (solution.peak_bytes, solution.status) == (least, Status.OVER_BUDGET)


@pytest.mark.slow
def test_a_million_stages_in_five_seconds() -> None:
    n, rng = 1_000_000, np.random.default_rng(0)
    sizes, flags = rng.integers(0, 10**8, (3, n + 1)), rng.integers(0, 2, (2, n))
    chain = Chain.from_arrays(a=sizes[0], s=sizes[1, 1:], t=sizes[2, 1:], i=flags[0], o=flags[1])
    start = perf_counter()
    solution = solve(chain, "linear")
    assert perf_counter() - start < 5
    assert solution.peak_bytes == least_peak(chain)[1]
    assert solve(Chain.from_arrays(a=[1] * (n + 1))).peak_bytes == 1414
