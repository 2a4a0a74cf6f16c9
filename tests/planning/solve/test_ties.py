"""Where the formula of a chain cannot tell sets apart, the step decides."""

from __future__ import annotations

import random

import pytest

from lowtide.planning.chain import Chain
from lowtide.planning.reduce import lift, reduce
from lowtide.planning.simulate import simulate
from lowtide.planning.solve import SOLVERS, solve
from lowtide.planning.solve.solver import ChainSolver
from tests.random_chains import random_chain
from tests.random_steps import random_step, residual_net

TYING = ("linear", "quadratic", "cubic")


def objective(name: str, chain: Chain, checkpoints: tuple[int, ...]) -> int:
    return chain.first_peak_bytes(checkpoints) if name == "cubic" else chain.peak_bytes(checkpoints)


@pytest.mark.parametrize("name", TYING)
def test_tied_sets_have_one_objective(name: str) -> None:
    solver = SOLVERS[name]
    assert isinstance(solver, ChainSolver)
    rng = random.Random(5)
    several = 0
    for _ in range(200):
        chain = random_chain(rng, rng.randint(1, 30), rng.choice((1, 3, 100)))
        found = solve(chain, name).checkpoints
        tied = solver.tied(chain, found)
        assert tied[0] == found
        assert len(set(tied)) == len(tied)
        assert {objective(name, chain, c) for c in tied} == {objective(name, chain, found)}
        several += len(tied) > 1
    assert several > 10


@pytest.mark.parametrize("name", TYING)
def test_on_a_step_the_best_of_them_is_taken(name: str) -> None:
    solver = SOLVERS[name]
    assert isinstance(solver, ChainSolver)
    better = 0
    steps = [random_step(seed, n_ops=4 + seed % 12) for seed in range(150)]
    for step in [*steps, residual_net(6), residual_net(10)]:
        chain = reduce(step, "module")
        found = solve(chain, name).checkpoints
        peaks = [simulate(step, lift(step, chain, c)).peak_bytes for c in solver.tied(chain, found)]
        assert simulate(step, solve(step, name).plan).peak_bytes == min(peaks)
        better += min(peaks) < peaks[0]
    assert better > 0


def test_where_greedy_ties_by_the_formula_linear_is_not_above_it_on_the_step() -> None:
    ties = 0
    for seed in range(150):
        step = random_step(seed, n_ops=4 + seed % 12)
        linear, greedy = solve(step, "linear"), solve(step, "greedy")
        if linear.stats["chain_peak_bytes"] == greedy.stats["chain_peak_bytes"]:
            ties += 1
            assert linear.peak_bytes <= greedy.peak_bytes
    assert ties > 50
