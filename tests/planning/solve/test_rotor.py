"""`rotor` against all persistent schedules, each played by the judge."""

from __future__ import annotations

import random

import pytest

from lowtide.errors import InputError
from lowtide.planning.chain import Chain
from lowtide.planning.reduce import reduce
from lowtide.planning.rehearse import rehearse
from lowtide.planning.simulate import simulate
from lowtide.planning.solve import Status, solve
from lowtide.planning.solve.rotor import Rotor
from tests.random_chains import persistent_schedules, random_chain
from tests.random_steps import uniform_chain


@pytest.mark.parametrize(("n", "count"), [(1, 20), (2, 40), (3, 60), (4, 40), (5, 12)])
def test_least_time_of_all_schedules(n: int, count: int) -> None:
    rng = random.Random(n)
    for _ in range(count):
        chain = random_chain(rng, n, rng.choice((1, 4, 30)))
        judged = [rehearse(chain, moves) for moves in persistent_schedules(chain)]
        least = min(x.peak_bytes for x in judged)
        peaks = sorted({x.peak_bytes for x in judged if x.peak_bytes > 0})
        for budget in peaks[:: max(1, len(peaks) // 6)]:
            solution = solve(chain, "rotor", budget)
            assert solution.peak_bytes <= budget
            assert solution.recompute_cost == min(x.recompute_cost for x in judged if x.peak_bytes <= budget)
        if least > 1:
            solution = solve(chain, "rotor", least - 1)
            assert (solution.peak_bytes, solution.status) == (least, Status.OVER_BUDGET)


def test_never_dearer_than_one_recomputation_and_more_budget_never_costs() -> None:
    rng = random.Random(8)
    for _ in range(5):
        chain = random_chain(rng, 40, 10**6)
        most, least = solve(chain, "keep_all").peak_bytes, solve(chain, "linear").peak_bytes
        for slots in (20, 500):
            costs = []
            for q in range(6):
                budget = least + (most - least) * q // 5
                solution = solve(chain, Rotor(slots=slots), budget)
                assert solution.peak_bytes <= budget
                assert solution.recompute_cost <= solve(chain, "linear", budget).recompute_cost
                costs.append(solution.recompute_cost)
            assert costs[-1] == 0
            if slots == 500:
                assert costs == sorted(costs, reverse=True)


def test_it_fits_where_one_recomputation_does_not() -> None:
    chain = Chain.from_arrays(a=[1] * 101)
    single = solve(chain, "linear").peak_bytes
    solution = solve(chain, "rotor", single // 2)
    assert solution.peak_bytes <= single // 2
    assert max(rehearse(chain, solution.schedule).runs) > 2


def test_finer_units_cost_no_more() -> None:
    chain = random_chain(random.Random(2), 40, 10**6)
    budget = solve(chain).peak_bytes * 7 // 10
    assert (
        solve(chain, Rotor(slots=2000), budget).recompute_cost <= solve(chain, Rotor(slots=60), budget).recompute_cost
    )


def test_an_input_above_the_budget() -> None:
    solution = solve(Chain.from_arrays(a=[100, 1, 1]), "rotor", 50)
    assert solution.status is Status.OVER_BUDGET


def test_chains_too_long_for_its_tables_are_refused() -> None:
    with pytest.raises(InputError, match=r"1500 stages do not fit in memory.*granularity='block'"):
        solve(Chain.from_arrays(a=[1] * 1501), "rotor")


def test_on_a_step_the_multiple_runs_are_real() -> None:
    step = uniform_chain(40)
    chain = reduce(step)
    budget = solve(chain, "linear").peak_bytes * 7 // 10
    solution = solve(step, Rotor(granularity="op"), budget)
    assert solution.plan is not None
    assert simulate(step, solution.plan).peak_bytes <= budget < solve(step, "frontier").peak_bytes
    ops = [o for some in solution.plan.runs.values() for o in some]
    assert len(ops) > len(set(ops))
