"""Revised objective in O(n): the thesis' checkpoint selection with a monotone deque."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import ClassVar

from lowtide.planning.chain import Chain
from lowtide.planning.solve.solution import Solution, Status, of_checkpoints
from lowtide.planning.solve.solver import ChainSolver
from lowtide.planning.solve.ties import tied


@dataclass(frozen=True)
class Linear(ChainSolver):
    """Least peak over all checkpoint sets, in O(n); with a budget least recomputation within it, in O(n log n).

    Idea: let V(i) be the least peak of stages i+1..n when activation i is held and nothing before it. The next
    checkpoint j splits it into its own segment, and a rest that is over before the segment is recomputed:
    `V(i) = a_i + min_{i<j<=n} max( M(i,j), V(j) )`, V(n) below everything. M(i,j) rises in j and falls in i. So a
    candidate j with V(j) >= V(j') for some j' < j never wins again, and the candidates left have V falling to the
    right; of these the rightmost is dropped for good once its M(i,j) reaches the V of its left neighbour, since M only
    grows as i goes down. The one that survives on the right is the best.

    Under a budget B the least bytes of checkpoints up to j, `D(j) = a_j + min{ D(i) : D(i) + M(i,j) <= B }`, decide
    alone what is possible from j on; of all j that can be the last checkpoint the first recomputes least.

    Many sets can have the least peak. On a chain the first that the recursion finds is taken; on a step, where they
    differ, the best of it, of one that recomputes least and of what `greedy` tries.

    Complexity: O(n) time and memory, a million stages in some 2 s. With a budget O(n log n).
    Reference: Hong, Tsai, Wang, Liu, Wu, JPDC 2025 (the objective); the recurrence is reconstructed.
    Assumes: every stage is recomputed at most once, a checkpoint is freed with its segment, and what a segment needs is
    counted during backward (`Chain.segment_peak`).
    Use it: always, on chains; `rotor` where stages may run more often.
    """

    name: ClassVar[str] = "linear"
    exact: ClassVar[bool] = True

    def solve_chain(self, chain: Chain, budget: int | None) -> Solution:
        if budget is not None:
            checkpoints = least_recomputation(chain, budget)
            if checkpoints is not None:
                return of_checkpoints(self.name, chain, checkpoints, Status.LEAST_COST, budget)
        checkpoints, peak = least_peak(chain)
        return of_checkpoints(self.name, chain, checkpoints, Status.LEAST_PEAK, budget, {"claimed_peak_bytes": peak})

    def tied(self, chain: Chain, found: tuple[int, ...]) -> list[tuple[int, ...]]:
        return tied_for_peak(chain, found)


def tied_for_peak(chain: Chain, found: tuple[int, ...]) -> list[tuple[int, ...]]:
    """`found`, a set of least peak, and others of that peak, one that recomputes least among them."""
    cheapest = least_recomputation(chain, chain.peak_bytes(found))
    return tied(chain, found, chain.peak_bytes, [] if cheapest is None else [tuple(cheapest)])


def least_peak(chain: Chain) -> tuple[list[int], int]:
    """The checkpoints of least peak under the revised objective, and that peak."""
    n, a, stored, levels = chain.n, chain.a, chain.stored, chain.levels
    value = [0] * n + [-1]  # V(0..n)
    following = [0] * n  # following[i]: the checkpoint after i in the best plan from i on
    # Both deques grow at the top end, where the small indices are, and shrink at both. Candidates: [low, top] of `row`.
    row, low, top = [n] + [0] * n, 0, 0
    # The window (i, row[low]]: stages and levels that can still be its maximum, which is at the bottom, [first, last].
    stage, level, first, last = [0] * (n + 1), [0] * (n + 1), 0, -1
    for i in range(n - 1, -1, -1):
        new = levels[i]
        while last >= first and level[last] <= new:
            last -= 1
        last += 1
        stage[last], level[last] = i + 1, new

        base, right = stored[i], row[low]
        while stage[first] > right:
            first += 1
        segment = level[first] - base
        while low < top and value[row[low + 1]] <= segment:
            low += 1
            right = row[low]
            while stage[first] > right:
                first += 1
            segment = level[first] - base

        rest = value[right]
        best = a[i] + (segment if segment > rest else rest)
        value[i], following[i] = best, right
        while top >= low and value[row[top]] >= best:
            top -= 1
        top += 1
        row[top] = i

    checkpoints: list[int] = []
    c = following[0]
    while c < n:
        checkpoints.append(c)
        c = following[c]
    return checkpoints, value[0]


def least_recomputation(chain: Chain, budget: int) -> list[int] | None:
    """The checkpoints with the earliest last one, peak at most `budget` under the revised objective; None if no set
    fits. Activation i can start a segment up to j as long as no level in between exceeds `budget - D(i) + P_i`."""
    n, a, stored, levels = chain.n, chain.a, chain.stored, chain.levels
    before = [0] * n  # before[j]: the checkpoint before j
    cheapest: list[tuple[int, int]] = []  # heap of (D(i), i)
    weakest: list[tuple[int, int]] = []  # heap of (budget - D(i) + P_i, i): the first to be closed by a high level
    is_open = [False] * n
    held = a[0]
    for j in range(1, n + 1):
        i = j - 1
        is_open[i] = True
        heappush(cheapest, (held, i))
        heappush(weakest, (budget - held + stored[i], i))
        while weakest and weakest[0][0] < levels[j - 1]:
            is_open[heappop(weakest)[1]] = False
        while cheapest and not is_open[cheapest[0][1]]:
            heappop(cheapest)
        if not cheapest:
            return None
        if j < n:
            least, before[j] = cheapest[0]
            held = a[j] + least
    c = is_open.index(True)
    checkpoints: list[int] = []
    while c > 0:
        checkpoints.append(c)
        c = before[c]
    return checkpoints[::-1]
