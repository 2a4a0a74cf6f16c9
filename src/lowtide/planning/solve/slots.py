"""What the solvers with slots share: a schedule that holds so many activations and records one stage at a time."""

from __future__ import annotations

from collections.abc import Callable

from lowtide.planning.chain import Chain
from lowtide.planning.rehearse import Action, Move


def unfold(n: int, slots: int, split: Callable[[int, int], int]) -> list[Move]:
    """The schedule that `split` describes for stages 1..n with `slots` activations held, the model's input included.

    `split(length, slots)` says how many of `length` stages to run ahead before holding the next activation, given that
    `slots` of them, the one at the start of these stages included, are free; it is asked for length >= 2, slots >= 2.
    """
    moves: list[Move] = []
    todo: list[tuple[int, int, int] | Move] = [(0, n, slots)]
    while todo:
        item = todo.pop()
        if isinstance(item, Move):
            moves.append(item)
            continue
        c, j, free = item
        if j - c == 1 or free == 1:
            for k in range(j, c, -1):
                moves.append(Move(Action.TAKE, c))
                moves += [Move(Action.RUN, r) for r in range(c + 1, k)]
                moves += [Move(Action.RECORD, k), Move(Action.BACKWARD, k)]
            continue
        middle = c + split(j - c, free)
        moves.append(Move(Action.TAKE, c))
        moves += [Move(Action.RUN, r) for r in range(c + 1, middle + 1)]
        moves.append(Move(Action.HOLD, middle))
        todo += [(c, middle, free), Move(Action.DROP, middle), (middle, j, free - 1)]
    return moves


def slots_within(chain: Chain, budget: int | None) -> int:
    """How many activations can be held, the model's input included, so that any schedule which records one stage at a
    time fits the budget; without a budget as many as keep the runs of a stage near log2(n). Between 1 and n."""
    if budget is None:
        return min(chain.n, 1 + chain.n.bit_length())
    largest = max(chain.a[1:-1], default=0)
    stages = zip(chain.a, chain.i, chain.s, chain.a[1:], chain.o, chain.t, strict=False)
    working = max((read if i else 0) + s + (a if o else 0) + t for read, i, s, a, o, t in stages)
    free = budget - chain.a[0] - working
    if free < 0:
        return 1
    return min(chain.n, 1 + (free // largest if largest else chain.n))
