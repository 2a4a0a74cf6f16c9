"""Every solver of the registry, judged by the rehearsal; and what `solve` accepts and refuses."""

from __future__ import annotations

import doctest
import importlib
import random

import pytest
from hypothesis import given

from lowtide.errors import InputError
from lowtide.planning.bound import bound
from lowtide.planning.chain import Chain
from lowtide.planning.rehearse import rehearse, rehearse_checkpoints
from lowtide.planning.simulate import simulate
from lowtide.planning.solve import SOLVERS, Solution, Status, pick, solve
from lowtide.planning.solve.linear import Linear
from lowtide.planning.solve.rotor import Rotor
from lowtide.planning.solve.solver import ChainSolver
from lowtide.planning.solve.sqrt import Sqrt
from tests.random_chains import chains, random_chain
from tests.random_steps import random_step, residual_net

CHAIN_SOLVERS = [name for name, solver in SOLVERS.items() if isinstance(solver, ChainSolver)]
ON_STEPS = ("deep", "exact", "frontier", "budget")  # they have more to say
PROVEN = (Status.LEAST_PEAK, Status.LEAST_OF_ALL)
TEN = Chain.from_arrays(a=[1] * 11)


def judge(chain: Chain, solution: Solution) -> None:
    """What a solution says about itself is what happens."""
    if solution.schedule:
        played = rehearse(chain, solution.schedule)
        assert min(played.runs) >= 1
    else:
        played = rehearse_checkpoints(chain, solution.checkpoints)
    assert solution.peak_bytes == played.peak_bytes
    assert solution.recompute_cost == pytest.approx(played.recompute_cost)
    assert solution.bound == chain.floor_bytes <= solution.peak_bytes
    assert list(solution.checkpoints) == sorted(set(solution.checkpoints))
    assert all(0 < c < chain.n for c in solution.checkpoints)


@pytest.mark.parametrize("name", CHAIN_SOLVERS)
@given(chain=chains(longest=12))
def test_small_chains(name: str, chain: Chain) -> None:
    judge(chain, solve(chain, name))


@pytest.mark.parametrize("name", CHAIN_SOLVERS)
def test_longer_chains_and_budgets(name: str) -> None:
    rng = random.Random(7)
    for _ in range(10):
        chain = random_chain(rng, rng.randint(13, 60), largest=1000)
        most, least = solve(chain, "keep_all").peak_bytes, solve(chain, "linear").peak_bytes
        for budget in (None, chain.floor_bytes, least, (most + least) // 2, most, 2 * most):
            solution = solve(chain, name, budget)
            judge(chain, solution)
            over = budget is not None and solution.peak_bytes > budget
            assert (solution.status is Status.OVER_BUDGET) == over


@pytest.mark.parametrize("name", CHAIN_SOLVERS)
def test_one_stage(name: str) -> None:
    solution = solve(Chain.from_arrays(a=[1, 2], s=[3], t=[4]), name)
    assert solution.checkpoints == ()
    assert solution.peak_bytes == 8


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_documents_itself(name: str) -> None:
    solver = SOLVERS[name]
    assert solver.name == name
    assert solver.summary.endswith(".")
    assert len(solver.summary) < 120
    for heading in ("Idea:", "Complexity:", "Reference:", "Assumes:", "Use it:"):
        assert heading in (type(solver).__doc__ or "")
    with pytest.raises(InputError, match=f"{name}.*takes.*not dict"):
        solver.solve({})


def test_linear_is_nowhere_above_the_others_that_recompute_once() -> None:
    rng = random.Random(3)
    for _ in range(50):
        chain = random_chain(rng, 40, largest=100)
        best = solve(chain).peak_bytes
        for name in CHAIN_SOLVERS:
            solution = solve(chain, name)
            assert solution.schedule or solution.peak_bytes >= best


def test_auto_is_linear_on_chains() -> None:
    assert pick(TEN) == "linear"
    assert solve(TEN).solver == solve(TEN, "auto").solver == "linear"
    with pytest.raises(InputError, match="no solver takes int"):
        pick(3)


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"no solver 'liner': did you mean 'linear'.*choose from auto, .*rotor"):
        solve(TEN, "liner")


def test_ready_checkpoints_and_solver_objects() -> None:
    given_ = solve(TEN, [5, 2])
    assert given_.checkpoints == (2, 5)
    assert given_.status is Status.GIVEN
    judge(TEN, given_)
    assert solve(TEN, (), budget=3).status is Status.OVER_BUDGET
    assert solve(TEN, Sqrt(segments=2)).checkpoints == (5,)
    with pytest.raises(InputError, match="10 is not a checkpoint"):
        solve(TEN, [10])


@pytest.mark.parametrize("budget", [0, -5, "lots", "-3 GiB"])
def test_senseless_budgets_are_refused(budget: int | str) -> None:
    with pytest.raises(InputError, match="size"):
        solve(TEN, budget=budget)


@pytest.mark.parametrize("make", [lambda: Sqrt(segments=0), lambda: Rotor(slots=0)])
def test_senseless_settings_are_refused(make: type) -> None:
    with pytest.raises(InputError, match="must be at least 1"):
        make()


def test_budget_as_text() -> None:
    assert solve(TEN, budget="1 KiB").checkpoints == ()


def test_every_status_is_a_sentence_with_a_remedy() -> None:
    for status in Status:
        assert ";" in status.value
        assert len(status.value) > 60


def test_repr_is_the_report() -> None:
    text = repr(solve(Chain.from_arrays(a=[1] * 2001)))
    assert text.startswith("Solution by linear: peak")
    assert "least peak of its class" in text
    assert "in all)" in text
    assert "moves" in repr(solve(TEN, "revolve"))


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_makes_plans_of_steps(name: str) -> None:
    for seed in range(25):
        step = random_step(seed, n_ops=2 + seed % 8)
        solution = solve(step, name)
        assert solution.plan is not None  # so the checker passed it
        assert solution.peak_bytes == solution.plan.peak_bytes == simulate(step, solution.plan).peak_bytes
        assert bound(step).bytes <= solution.bound <= solution.peak_bytes
        assert solution.plan.solver == solution.solver == name
        said = solution.plan.status
        assert said == solution.status.value or name in ON_STEPS
        assert name not in ("deep", "exact", "frontier") or ("proven" in said) == (solution.status in PROVEN)


def test_auto_is_deep_on_steps_and_plans_are_accepted() -> None:
    step = residual_net(4)
    best = solve(step, progress=lambda _: None)
    assert best.solver == "deep"
    assert best.plan is not None
    again = solve(step, best.plan, budget=best.peak_bytes)
    assert (again.peak_bytes, again.status) == (best.peak_bytes, Status.GIVEN)
    assert solve(step, best.plan, budget=1).status is Status.OVER_BUDGET
    with pytest.raises(InputError, match="tuple is not a solver, nor a Plan for a Step"):
        solve(step, (1, 2))
    with pytest.raises(InputError, match="Plan is not a solver, nor checkpoints for a Chain"):
        solve(TEN, best.plan)


def test_granularity_is_a_setting_of_the_solver() -> None:
    step = residual_net(6)
    fine, coarse = (
        solve(step, Linear(granularity="op")),
        solve(step, Linear(granularity=lambda path: int(path[1:]) // 14)),
    )
    assert fine.stats["stages"] > coarse.stats["stages"]
    assert fine.peak_bytes <= coarse.peak_bytes


@pytest.mark.parametrize("module", ["lowtide.planning.solve", "lowtide.planning.chain"])
def test_examples_in_docstrings(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0
