"""Random chains, and everything that can be done with a small one. No solver is used here."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain as joined
from itertools import combinations

from hypothesis import strategies as st

from lowtide.planning.chain import Chain
from lowtide.planning.rehearse import Action, Move


def random_chain(rng: random.Random, n: int, largest: int = 8) -> Chain:
    """A chain of `n` stages with sizes 0..`largest` and whole costs 1..9."""

    def sizes(count: int) -> list[int]:
        return [rng.randint(0, largest) for _ in range(count)]

    def flags() -> list[int]:
        return [rng.randint(0, 1) for _ in range(n)]

    def costs() -> list[int]:
        return [rng.randint(1, 9) for _ in range(n)]

    return Chain.from_arrays(
        a=sizes(n + 1), s=sizes(n), i=flags(), o=flags(), t=sizes(n), forward=costs(), backward=costs()
    )


@st.composite
def chains(draw: st.DrawFn, longest: int = 9) -> Chain:
    n = draw(st.integers(1, longest))
    sizes = st.integers(0, draw(st.sampled_from([1, 3, 20, 10**12])))

    def column(elements: st.SearchStrategy[int], length: int = n) -> list[int]:
        return draw(st.lists(elements, min_size=length, max_size=length))

    return Chain.from_arrays(
        a=column(sizes, n + 1),
        s=column(sizes),
        i=column(st.integers(0, 1)),
        o=column(st.integers(0, 1)),
        t=column(sizes),
        forward=column(st.integers(0, 5)),
        backward=column(st.integers(0, 5)),
    )


def checkpoint_sets(n: int) -> Iterator[tuple[int, ...]]:
    """All 2^(n-1) checkpoint sets of a chain of `n` stages."""
    return joined.from_iterable(combinations(range(1, n), size) for size in range(n))


def persistent_schedules(chain: Chain, c: int = 0, b: int | None = None) -> Iterator[list[Move]]:
    """All schedules of stages c+1..b, activation c being held, in which a held activation stays until the stages behind
    it are done; each either runs ahead and holds, or records the next stage and holds its output or not."""
    end = chain.n if b is None else b
    for j in range(c + 1, end):
        ahead = [Move(Action.TAKE, c), *(Move(Action.RUN, k) for k in range(c + 1, j + 1)), Move(Action.HOLD, j)]
        for right in persistent_schedules(chain, j, end):
            for left in persistent_schedules(chain, c, j):
                yield [*ahead, *right, Move(Action.DROP, j), *left]
    for rest in _recorded(chain, c, end):
        yield [Move(Action.TAKE, c), *rest]


def _recorded(chain: Chain, c: int, b: int) -> Iterator[list[Move]]:
    """Schedules of stages c+1..b that record stage c+1 from what is in hand."""
    k = c + 1
    if k == b:
        yield [Move(Action.RECORD, k), Move(Action.BACKWARD, k)]
        return
    for rest in persistent_schedules(chain, k, b):
        yield [Move(Action.RECORD, k), Move(Action.HOLD, k), *rest, Move(Action.DROP, k), Move(Action.BACKWARD, k)]
    for rest in _recorded(chain, k, b):
        yield [Move(Action.RECORD, k), *rest, Move(Action.BACKWARD, k)]
