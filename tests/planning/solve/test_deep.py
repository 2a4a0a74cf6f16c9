from __future__ import annotations

import pytest

from lowtide.errors import InputError
from lowtide.planning.bound import bound
from lowtide.planning.check import check
from lowtide.planning.simulate import simulate
from lowtide.planning.solve import solve
from lowtide.planning.solve.deep import deep
from lowtide.planning.solve.frontier import search
from lowtide.planning.solve.on_steps import Deep
from lowtide.planning.solve.solution import Status
from tests.random_steps import random_step, residual_net, uniform_chain


@pytest.mark.parametrize("limit", [0.0, 0.2, 0.34, None])
def test_plans_keep_to_the_limit_and_are_never_worse_than_none(limit: float | None) -> None:
    for seed in range(100):
        step = random_step(seed, 3 + seed % 12)
        found = deep(step, limit)
        assert not check(step, found.keep, found.runs)
        timeline = simulate(step, (found.keep, found.runs))
        assert bound(step).bytes <= found.least_bytes <= found.peak_bytes == timeline.peak_bytes
        assert found.peak_bytes <= simulate(step).peak_bytes
        assert timeline.recompute_flops == pytest.approx(found.added * step.total_flops)
        assert limit is None or found.added <= limit + 1e-12
        assert ("proven" in found.status) == (found.peak_bytes == found.least_bytes)


def test_never_above_the_cuts_and_mostly_at_the_bound() -> None:
    below = at_bound = 0
    for seed in range(100):
        step = random_step(seed, 4 + seed % 12)
        cuts, found = search(step), deep(step, None)
        assert found.peak_bytes <= cuts.peak_bytes
        below += found.peak_bytes < cuts.peak_bytes
        at_bound += found.peak_bytes == found.least_bytes
    assert below > 40
    assert at_bound > 50


def test_little_work_is_better_than_none() -> None:
    """The cuts of least peak take 0.3 of a step; where less is allowed, the search comes from above."""
    step = residual_net(12)
    found = deep(step, 0.1)
    assert 0 < found.added <= 0.1
    assert found.peak_bytes < 0.8 * simulate(step).peak_bytes


@pytest.mark.parametrize("most", [1, 2])
def test_ops_run_again_so_often_at_most(most: int) -> None:
    for seed in range(60):
        step = random_step(seed, 4 + seed % 12)
        found = deep(step, None, most)
        ops = [o for row in found.runs.values() for o in row]
        assert all(ops.count(o) <= most for o in ops)
        assert not check(step, found.keep, found.runs)


def test_a_long_chain_without_limit_needs_little() -> None:
    """64 equal stages: keeping square-root many costs 19 (`search`); with more runs a dozen is enough."""
    step = uniform_chain(64)
    assert deep(step, None).peak_bytes <= 0.8 * search(step).peak_bytes


def test_more_allowed_is_not_more_peak_on_a_residual_net() -> None:
    step = residual_net(12)
    peaks = [deep(step, limit).peak_bytes for limit in (0.1, 0.2, 0.34, 1.0, None)]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < peaks[0]


def test_the_same_every_time_and_anytime() -> None:
    step = residual_net(10)
    a, b = deep(step, seconds=None), deep(step, seconds=None)
    assert (a.keep, a.runs) == (b.keep, b.runs)
    reported: list[float] = []
    hurried = deep(step, progress=reported.append, tries=20)
    assert hurried.tries < 40
    assert a.peak_bytes <= hurried.peak_bytes <= simulate(step).peak_bytes
    assert reported == sorted(reported)
    assert reported[-1] == 1.0


def test_as_a_solver() -> None:
    step = residual_net(10)
    solution = solve(step, Deep(max_slowdown=None))
    assert solution.plan is not None
    assert solution.status in (Status.SEARCHED, Status.LEAST_OF_ALL)
    assert solution.plan.status == deep(step, None).status
    for wrong in ({"max_slowdown": -0.1}, {"max_recompute": 0}, {"tries": 0}):
        with pytest.raises(InputError, match="must be at least"):
            Deep(**wrong)


def test_without_time_it_gives_the_plan_of_the_best_cuts() -> None:
    step = residual_net(12)
    hasty, patient = (solve(step, Deep(max_slowdown=None, seconds=s)).peak_bytes for s in (1e-9, None))
    cuts = solve(step, "frontier").peak_bytes
    assert patient < cuts < simulate(step).peak_bytes
    assert patient <= hasty <= cuts
    with pytest.raises(InputError, match="seconds must be more than 0, or None for no limit, not 0"):
        Deep(seconds=0)
