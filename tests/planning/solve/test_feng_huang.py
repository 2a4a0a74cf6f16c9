"""`feng_huang` against all checkpoint sets on its own objective, and on graphs against the algorithm read literally."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import pytest

from lowtide.planning.chain import Chain
from lowtide.planning.graph import Graph
from lowtide.planning.solve import solve
from lowtide.planning.solve.division import Kind, Part, divide
from tests.random_chains import checkpoint_sets, random_chain
from tests.random_graphs import path, random_graph, series_parallel
from tests.random_steps import random_step


def own_objective(chain: Chain, checkpoints: tuple[int, ...]) -> int:
    """Bytes of all checkpoints and the input, plus what the largest segment stores when it has run."""
    cuts = (0, *checkpoints, chain.n)

    def stored(c: int, j: int) -> int:
        total = 0
        for k in range(c + 1, j + 1):
            is_read = k < j and chain.i[k]
            total += chain.s[k - 1] + (chain.a[k] if chain.o[k - 1] or is_read else 0)
        return total

    return sum(chain.a[c] for c in cuts[:-1]) + max(stored(c, j) for c, j in pairwise(cuts))


def test_least_of_all_sets() -> None:
    rng = random.Random(12)
    for _ in range(1000):
        chain = random_chain(rng, rng.randint(1, 8), rng.choice((1, 3, 8, 100)))
        solution = solve(chain, "feng_huang")
        best = min(own_objective(chain, c) for c in checkpoint_sets(chain.n))
        assert own_objective(chain, solution.checkpoints) == solution.stats["claimed_peak_bytes"] == best


def shortest(sizes: list[int], parts: list[Part], cap: int) -> int:
    """Least bytes of inner vertices kept on a row of parts, all segments at most `cap`: over all pairs of ends."""
    least = [0, *(10**9 for _ in parts)]
    for b in range(1, len(parts) + 1):
        for a in range(b):
            segment = sum(p.nbytes for p in parts[a:b]) + sum(sizes[a + 1 : b])
            if segment <= cap:
                least[b] = min(least[b], least[a] + (sizes[a] if a > 0 else 0))
    return least[-1]


def kept_bytes(graph: Graph, part: Part, cap: int) -> int:
    """What a part above the cap keeps inside, read from the definition."""
    total = sum(kept_bytes(graph, c, cap) for c in part.children if c.nbytes > cap)
    if part.kind is not Kind.LINEAR:
        return total + sum(graph.nbytes[v] for v in part.inside)
    fixed = {v for c in part.children if c.nbytes > cap for v in (c.source, c.target)} - {part.source, part.target}
    total += sum(graph.nbytes[v] for v in fixed)
    run: list[Part] = []
    for child in [*part.children, None]:
        if child is not None and child.nbytes <= cap:
            run.append(child)
        elif run:
            sizes = [graph.nbytes[c.source] for c in run]
            total += shortest(sizes, run, cap)
            run = []
    return total


def terms(graph: Graph, part: Part) -> set[int]:
    """All that can be the largest segment."""
    found = {part.nbytes} | {t for c in part.children for t in terms(graph, c)}
    if part.kind is Kind.LINEAR:
        for a in range(len(part.children)):
            for b in range(a + 1, len(part.children) + 1):
                inside = part.children[a:b]
                found.add(sum(c.nbytes for c in inside) + sum(graph.nbytes[c.target] for c in inside[:-1]))
    return found


def literal(graph: Graph) -> int:
    tree = divide(graph)
    return min((0 if tree.nbytes <= cap else kept_bytes(graph, tree, cap)) + cap for cap in terms(graph, tree))


@pytest.mark.parametrize("kind", ["path", "series", "any"])
def test_graphs_as_the_algorithm_says(kind: str) -> None:
    rng = random.Random(kind)
    for _ in range(150):
        if kind == "path":
            graph = path(rng, rng.randint(0, 9))
        elif kind == "series":
            graph = series_parallel(rng, rng.randint(1, 3))
        else:
            graph = random_graph(rng, rng.randint(1, 12), density=rng.choice((0.1, 0.25, 0.5)))
        solution = solve(graph, "feng_huang")
        assert solution.stats["claimed_peak_bytes"] == literal(graph)
        assert solution.peak_bytes <= solution.stats["claimed_peak_bytes"]  # pieces are never larger than its segments


def test_least_of_all_vertex_sets_on_paths_and_near_it_on_graphs() -> None:
    rng = random.Random(77)
    worse = 0
    for k in range(60):
        graph = path(rng, rng.randint(0, 8)) if k % 2 else random_graph(rng, rng.randint(1, 8))
        inner = range(1, graph.n - 1)
        sets = (s for count in range(graph.n - 1) for s in combinations(inner, count))
        best = min(graph.sum_plus_worst_bytes(s) for s in sets)
        found = solve(graph, "feng_huang").peak_bytes
        assert found >= best
        assert found == best or k % 2 == 0
        worse += found > best
    assert worse == 16  # of 30: on graphs it is no exact algorithm


def vertices_of(part: Part) -> set[int]:
    return set(part.inside) | {v for c in part.children for v in vertices_of(c)}


def leaves(part: Part) -> list[tuple[int, int]]:
    return [e for c in part.children for e in leaves(c)] if part.children else [(part.source, part.target)]


@pytest.mark.parametrize("seed", range(40))
def test_the_division_tree_holds_every_vertex_and_every_edge_once(seed: int) -> None:
    rng = random.Random(seed)
    graph = series_parallel(rng, 3) if seed % 2 else random_graph(rng, rng.randint(1, 25), density=0.15)
    tree = divide(graph)
    assert vertices_of(tree) == set(range(1, graph.n - 1))
    edges = leaves(tree)
    assert sorted(set(edges)) == sorted(set(graph.edges))
    # a graph has no parallel edges; a series-parallel one can make them, and they count as one
    assert len(edges) == len(set(edges))


def test_kinds() -> None:
    def graph(n: int, *edges: tuple[int, int]) -> Graph:
        return Graph(nbytes=(1,) * n, cost=(1.0,) * n, edges=edges)

    assert divide(graph(2, (0, 1))).kind is Kind.LEAF
    assert divide(graph(4, (0, 1), (1, 2), (2, 3))).kind is Kind.LINEAR
    assert divide(graph(3, (0, 1), (1, 2), (0, 2))).kind is Kind.BRANCH
    assert divide(graph(4, (0, 1), (0, 2), (1, 3), (2, 3))).kind is Kind.BRANCH
    # 1 -> 2 ties the two branches together
    tied = divide(graph(4, (0, 1), (0, 2), (1, 3), (2, 3), (1, 2)))
    assert (tied.kind, tied.inside) == (Kind.OTHER, (1, 2))


def test_steps_by_their_graph() -> None:
    step = random_step(3, n_ops=8)
    solution = solve(step, "feng_huang")
    assert solution.stats["vertices"] == Graph.from_step(step).n
