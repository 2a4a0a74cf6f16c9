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


def test_flow_that_took_a_short_cut_is_sent_another_way() -> None:
    """The shortest path 0-2-3-1 blocks; two units fit only if 2 sends its one over 4 and 5."""
    net = Network(8)
    for a, b in ((0, 2), (2, 3), (3, 1), (2, 4), (4, 5), (5, 1), (0, 6), (6, 7), (7, 3)):
        net.edge(a, b, 1)
    net.cut(0, 1)
    assert net.flow == 2
