"""Graphs: of steps, of chains, their pieces, and kept vertices as plans."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.errors import InputError
from lowtide.planning.chain import Chain
from lowtide.planning.check import check
from lowtide.planning.graph import Graph, lift_kept
from lowtide.planning.simulate import keep_all, simulate
from lowtide.planning.step import Step
from tests.random_graphs import random_graph
from tests.random_steps import residual_net, steps, uniform_chain

DIAMOND = Graph(nbytes=(0, 2, 3, 4, 5), cost=(0, 1, 1, 1, 1), edges=((0, 1), (1, 2), (1, 3), (2, 4), (3, 4)))


def test_neighbours_and_pieces() -> None:
    assert DIAMOND.before[4] == (2, 3)
    assert DIAMOND.after[1] == (2, 3)
    assert DIAMOND.pieces([]) == [[1, 2, 3]]
    assert DIAMOND.pieces([1]) == [[2], [3]]
    assert DIAMOND.sum_plus_worst_bytes([1]) == 2 + 4
    assert DIAMOND.sum_plus_worst_bytes([]) == 9


@pytest.mark.parametrize(
    ("nbytes", "cost", "edges", "message"),
    [
        ((1,), (1,), (), "at least an input and an output"),
        ((1, 2), (1,), ((0, 1),), "cost has 1 entries for 2 vertices"),
        ((1, -2), (0, 1), ((0, 1),), "-2 bytes"),
        ((1, 2), (0, 1), ((1, 0),), "from an earlier to a later"),
        ((1, 2), (0, 1), ((0, 2),), "from an earlier to a later"),
        ((1, 2, 3), (0, 1, 1), ((0, 2),), "vertex 1 lies on no path"),
        ((1, 2, 3), (0, 1, 1), ((0, 1), (0, 2)), "vertex 1 lies on no path"),
    ],
)
def test_what_is_not_a_graph_is_refused(
    nbytes: tuple[int, ...], cost: tuple[float, ...], edges: tuple[tuple[int, int], ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Graph(nbytes=nbytes, cost=cost, edges=edges)


def test_a_chain_is_a_path() -> None:
    graph = Graph.from_chain(Chain.from_arrays(a=[7, 1, 2], s=[10, 20], forward=[3, 4]))
    assert graph.nbytes == (7, 11, 22)
    assert graph.cost == (0, 3, 4)
    assert graph.edges == ((0, 1), (1, 2))


def test_a_residual_net_is_branches_in_a_row() -> None:
    graph = Graph.from_step(residual_net(2))
    # conv, norm with relu_; per block conv, norm with relu_, conv, norm with += and relu_; the loss; the input
    assert graph.n == 1 + 2 + 2 * 4 + 1
    after_relu = 2
    assert graph.after[after_relu] == (3, 6)  # the block's first conv, and its sum
    assert [len(graph.ops[v]) for v in (1, 2, 6)] == [1, 2, 3]
    assert graph.cost[2] == (10 + 1) + (10 + 2)


@given(steps(9))
def test_every_step_has_a_graph(step: Step) -> None:
    graph = Graph.from_step(step)
    ops = [o for group in graph.ops for o in group]
    assert len(ops) == len(set(ops))
    assert step.n_forward - 1 in graph.ops[-1] or not step.ops[-1].writes


@given(steps(9), st.randoms(use_true_random=False))
def test_kept_vertices_are_plans(step: Step, rng: random.Random) -> None:
    graph = Graph.from_step(step)
    kept = [v for v in range(1, graph.n) if rng.random() < 0.4]
    keep, runs = lift_kept(step, graph, kept)
    assert check(step, keep, runs) == []
    ops = [o for some in runs.values() for o in some]
    assert len(ops) == len(set(ops))


def test_the_piece_that_is_asked_for_first_is_not_recomputed() -> None:
    step = uniform_chain(6)
    keep, runs = lift_kept(step, Graph.from_step(step), [])
    assert runs == {}
    assert keep == keep_all(step)
    keep, runs = lift_kept(step, Graph.from_step(step), [3])
    assert [list(ops) for ops in runs.values()] == [[0, 1]]  # nobody saved the input of the third from inside
    assert simulate(step, (keep, runs)).recompute_ops == 2


def test_pieces_run_when_they_are_asked_for() -> None:
    step = residual_net(3)
    graph = Graph.from_step(step)
    _, runs = lift_kept(step, graph, [6, 10])  # the sums of the first two blocks
    moments = sorted(runs)
    assert len(moments) == 2
    assert min(runs[moments[0]]) > max(runs[moments[1]])


def test_random_graphs_are_graphs() -> None:
    rng = random.Random(0)
    for _ in range(100):
        assert random_graph(rng, rng.randint(0, 9)).n >= 2
