"""First objective in O(n^3): the dynamic program of the thesis, chapter 3."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from lowtide.planning.chain import Chain
from lowtide.planning.solve.solution import Solution, Status, of_checkpoints
from lowtide.planning.solve.solver import ChainSolver
from lowtide.planning.solve.ties import tied


@dataclass(frozen=True)
class Cubic(ChainSolver):
    """Least "all checkpoints plus the worst segment", the thesis' first objective, in O(n^3).

    Idea: `min_C sum_{c in C} a_c + max_t M(c_t, c_{t+1})`. Fix a cap on M; the cheapest checkpoints whose segments stay
    under it are a shortest path, and since M rises in j and falls in i the predecessors of j are a sliding window: O(n)
    per cap. Only O(n^2) values can be the cap. They are visited from the top, each time jumping below the worst segment
    that the last path really had and below what could still beat the best total, so that mostly few are tried.

    Complexity: O(n^3) time at worst, O(n) memory; 500 stages in well under a second.
    Reference: N. Wang, master's thesis, NTU 2023, chapter 3 (its recurrence is reconstructed).
    Assumes: as `linear`, but no checkpoint is freed before the end of the step, which PyTorch does: the peak that the
    solution reports is the revised one, `stats["claimed_peak_bytes"]` is the first objective.
    Use it: to compare the objectives; `linear` is never worse.
    """

    name: ClassVar[str] = "cubic"
    exact: ClassVar[bool] = True

    def solve_chain(self, chain: Chain, budget: int | None) -> Solution:
        checkpoints, total, caps = least_sum_plus_worst(chain.a, chain.stored, chain.levels)
        stats = {"claimed_peak_bytes": total, "caps": caps}
        return of_checkpoints(self.name, chain, checkpoints, Status.LEAST_CLAIM, budget, stats)

    def tied(self, chain: Chain, found: tuple[int, ...]) -> list[tuple[int, ...]]:
        return tied(chain, found, chain.first_peak_bytes)


def least_sum_plus_worst(
    cost: Sequence[int], stored: Sequence[int], levels: Sequence[int]
) -> tuple[list[int], int, int]:
    """Least sum of `cost` over the checkpoints and 0, plus the worst segment `max(levels_{c+1..j}) - stored_c`.

    Returns the checkpoints, the least total, and how many caps were tried.
    """
    n = len(levels)
    floor = max(levels[k] - stored[k] for k in range(n))  # no segment set has a better worst one
    best, best_total, caps = list[int](), -1, 0

    def attempt(cap: int) -> tuple[int, int]:
        nonlocal best, best_total, caps
        path, total = cheapest_under(cap, cost, stored, levels)
        worst = max(max(levels[c:j]) - stored[c] for c, j in pairwise((*path, n)))
        caps += 1
        if best_total < 0 or total + worst < best_total:
            best, best_total = path[1:], total + worst
        return total, worst

    # A few caps first, each half the last: a good total early rules most of the high caps out.
    probe = max(levels)
    while probe > floor:
        attempt(probe)
        probe //= 2
    attempt(floor)
    cap = min(max(levels), best_total - cost[0] - 1)
    while cap >= floor:
        total, worst = attempt(cap)
        # Lower caps make the checkpoints no cheaper, and between `worst` and `cap` nothing changes.
        cap = min(worst - 1, best_total - total - 1)
    return best, best_total, caps


def cheapest_under(
    cap: int, cost: Sequence[int], stored: Sequence[int], levels: Sequence[int]
) -> tuple[list[int], int]:
    """The path 0 = c_0 < c_1 < ... of least total cost with all its segments, the last one to n included, at most
    `cap`; and that cost. The cap must allow every single stage."""
    n = len(levels)
    total = [cost[0]] + [0] * n
    before = [0] * (n + 1)
    window: deque[int] = deque()  # predecessors of j that can still be the cheapest, their totals rising
    highest: deque[int] = deque()  # stages in (low, j] that can still be the highest, their levels falling
    low = 0
    for j in range(1, n + 1):
        while window and total[window[-1]] >= total[j - 1]:
            window.pop()
        window.append(j - 1)
        while highest and levels[highest[-1] - 1] <= levels[j - 1]:
            highest.pop()
        highest.append(j)
        while levels[highest[0] - 1] - stored[low] > cap:
            low += 1
            if highest[0] <= low:
                highest.popleft()
        while window[0] < low:
            window.popleft()
        before[j] = window[0]
        total[j] = total[before[j]] + (cost[j] if j < n else 0)
    path: list[int] = []
    c = n
    while c > 0:
        c = before[c]
        path.append(c)
    return path[::-1], total[n]
