"""Random graphs for tests: series-parallel ones, and ones with no shape at all."""

from __future__ import annotations

import random
from itertools import pairwise

from lowtide.planning.graph import Graph


def random_graph(rng: random.Random, inner: int, largest: int = 9, density: float = 0.25) -> Graph:
    """A graph of `inner` vertices between the first and the last, with sizes 1..`largest` and costs 1..5."""
    n = inner + 2
    edges = {(u, v) for v in range(1, n) for u in range(v) if (u, v) != (0, n - 1) and rng.random() < density}
    for v in range(1, n):
        if not any(b == v for _, b in edges):
            edges.add((rng.randrange(v), v))
    for u in range(n - 1):
        if not any(a == u for a, _ in edges):
            edges.add((u, rng.randrange(u + 1, n)))
    return _sized(rng, n, edges, largest)


def series_parallel(rng: random.Random, depth: int, largest: int = 9) -> Graph:
    """A graph that falls apart into rows and branches all the way down."""
    edges: list[tuple[int, int]] = []
    count = 2

    def between(s: int, t: int, depth: int) -> None:
        nonlocal count
        if depth == 0:
            edges.append((s, t))
        elif rng.random() < 0.6:
            ends = [s]
            for _ in range(rng.randint(1, 3)):
                ends.append(count)
                count += 1
            ends.append(t)
            for a, b in pairwise(ends):
                between(a, b, depth - 1)
        else:
            for _ in range(2):
                between(s, t, depth - 1)

    between(0, 1, depth)
    order = _topological(count, edges)
    return _sized(rng, count, {(order[u], order[v]) for u, v in edges}, largest)


def path(rng: random.Random, inner: int, largest: int = 9) -> Graph:
    return _sized(rng, inner + 2, {(k, k + 1) for k in range(inner + 1)}, largest)


def _topological(n: int, edges: list[tuple[int, int]]) -> dict[int, int]:
    """Vertex -> its place; vertex 0 is the first and vertex 1 the last."""
    left = {v: {a for a, b in edges if b == v} for v in range(n)}
    place: dict[int, int] = {}
    while left:
        v = min((v for v, before in left.items() if not before), key=lambda v: (v == 1, v))
        place[v] = len(place)
        del left[v]
        for before in left.values():
            before.discard(v)
    return place


def _sized(rng: random.Random, n: int, edges: set[tuple[int, int]], largest: int) -> Graph:
    return Graph(
        nbytes=(0, *(rng.randint(1, largest) for _ in range(n - 1))),
        cost=(0.0, *(float(rng.randint(1, 5)) for _ in range(n - 1))),
        edges=tuple(sorted(edges)),
    )
