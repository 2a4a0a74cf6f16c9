from __future__ import annotations

import itertools
import random

from lowtide.planning.mincut import FAR, Network


def test_cuts_are_the_cheapest_and_their_sink_side_the_smallest() -> None:
    rng = random.Random(1)
    for _ in range(300):
        n = rng.randint(2, 9)
        edges = [(rng.randrange(n), rng.randrange(n), rng.randint(0, 9)) for _ in range(rng.randint(1, 40))]
        net = Network(n)
        for a, b, c in edges:
            net.edge(a, b, c)
        side = net.cut(0, 1)
        assert side[1]
        assert not side[0]

        def cost(sink: tuple[bool, ...], edges: list[tuple[int, int, int]] = edges) -> int:
            return sum(c for a, b, c in edges if not sink[a] and sink[b])

        sides = [(False, True, *rest) for rest in itertools.product((False, True), repeat=n - 2)]
        least = min(map(cost, sides))
        assert net.flow == least == cost(tuple(side))
        assert sum(side) == min(sum(s) for s in sides if cost(s) == least)


def test_edges_that_must_not_be_cut_are_not() -> None:
    net = Network(4)
    net.edge(0, 2, 5)
    net.edge(2, 3, FAR)
    net.edge(3, 1, 7)
    assert net.cut(0, 1) == [False, True, True, True]
    assert net.flow == 5
