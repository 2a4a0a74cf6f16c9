"""`lower_sets` against all rows of lower sets, with the paper's formulas read literally."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, pairwise

import pytest

from lowtide.errors import InputError
from lowtide.planning.chain import Chain
from lowtide.planning.graph import Graph
from lowtide.planning.solve import pick, solve
from lowtide.planning.solve.lower_sets import Family, LowerSets
from tests.random_graphs import path, random_graph, series_parallel
from tests.random_steps import residual_net

Vertices = frozenset[int]


def lower_sets(graph: Graph) -> list[Vertices]:
    inner = range(1, graph.n)
    sets = (frozenset(s) for count in range(graph.n) for s in combinations(inner, count))
    return [s for s in sets if all(u in s or u == 0 for v in s for u in graph.before[v])]


def rows(sets: list[Vertices], start: Vertices, end: Vertices) -> Iterator[list[Vertices]]:
    if start == end:
        yield []
    for s in sets:
        if start < s:
            for rest in rows(sets, s, end):
                yield [s, *rest]


def figures(graph: Graph, row: list[Vertices]) -> tuple[int, float]:
    """Memory and added cost of a row of lower sets."""

    def nbytes(vertices: set[int] | Vertices) -> int:
        return sum(graph.nbytes[v] for v in vertices)

    held: set[int] = set()
    before: Vertices = frozenset()
    worst, cost = 0, 0.0
    for s in row:
        readers = {w for v in s for w in graph.after[v]} - s
        read = {u for w in readers for u in graph.before[w]} - {0}
        boundary = read & s
        worst = max(worst, nbytes(held) + 2 * nbytes(s - before) + nbytes(readers) + nbytes(read - s))
        held |= boundary
        if s is not row[-1]:
            cost += sum(graph.cost[v] for v in (s - before) - boundary)
        before = s
    return worst, cost


@pytest.mark.parametrize("seed", range(30))
def test_least_of_all_rows(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(1, 5)) if seed % 3 else path(rng, rng.randint(1, 6))
    sets = lower_sets(graph)
    judged = [figures(graph, row) for row in rows(sets, frozenset(), frozenset(range(1, graph.n)))]
    family = Family(graph, exact_sets=1000, largest=1000)
    assert family.is_exact
    assert family.size == len(sets)
    assert family.least_budget() == min(m for m, _ in judged)
    for budget in sorted({m for m, _ in judged}):
        kept, stats = family.plan(budget, ticks=200)
        assert stats["claimed_peak_bytes"] <= budget
        assert stats["claimed_cost"] == min(cost for m, cost in judged if m <= budget)
        assert all(0 < v < graph.n for v in kept)


def test_the_pruned_family_costs_little() -> None:
    rng = random.Random(1)
    for _ in range(20):
        graph = series_parallel(rng, 3)
        everything = Family(graph, exact_sets=5000, largest=1000)
        pruned = Family(graph, exact_sets=1, largest=1000)
        assert not pruned.is_exact
        assert pruned.size <= graph.n + 1
        assert everything.least_budget() <= pruned.least_budget()
        assert pruned.least_budget() <= 1.5 * everything.least_budget()


def test_budgets_are_kept_and_more_costs_less() -> None:
    step = residual_net(6)
    whole, least = solve(step, "keep_all").peak_bytes, solve(step, "lower_sets").peak_bytes
    assert least < whole
    last = float("inf")
    for budget in (least, (least + whole) // 2, whole, 2 * whole):
        solution = solve(step, "lower_sets", budget)
        assert solution.peak_bytes <= budget
        assert solution.recompute_cost <= last
        last = solution.recompute_cost


def test_chains_are_paths() -> None:
    chain = Chain.from_arrays(a=[1] * 26)
    solution = solve(chain, "lower_sets")
    # segments get shorter to the end, as their checkpoints add up
    lengths = [b - a for a, b in pairwise((0, *solution.checkpoints, 25))]
    assert lengths == sorted(lengths, reverse=True)
    assert solution.peak_bytes < solution.stats["claimed_peak_bytes"] == 11


def test_graphs_are_taken_and_picked() -> None:
    graph = random_graph(random.Random(5), 6)
    assert pick(graph) == "lower_sets"
    assert solve(graph).solver == "lower_sets"
    assert solve(graph, [1]).checkpoints == (1,)


def test_costs_in_seconds_are_divided_into_ticks() -> None:
    rng = random.Random(3)
    graph = path(rng, 12)
    tiny = Graph(graph.nbytes, tuple(c * 1e-6 for c in graph.cost), graph.edges)
    budget = Family(graph, 500, 500).least_budget() * 2
    assert Family(tiny, 500, 500).plan(budget, 200)[0] == Family(graph, 500, 500).plan(budget, 200)[0]


def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(InputError, match="101 vertices, and lower_sets takes up to 50"):
        solve(Chain.from_arrays(a=[1] * 101), LowerSets(largest=50))
    with pytest.raises(InputError, match="must be at least 1"):
        LowerSets(ticks=0)
