"""frontier: least peak with at most one recomputation of any op, on op-level frontiers.

The revised objective of the thesis (N. Wang, NTU 2023, section 4) on a traced step. A plan of this
class is a set of cuts 0 = c_0 < c_1 < ... < c_k < n. The frontiers of the cuts are kept, the last segment keeps what
it saves, and each other segment is run again once. With V(i) the least peak of what is forward of cut i in forward
and before it in backward, in bytes above those kept by cuts so far,

    V(i) = min( M(i, n), min_{i<j<n} max( M(i, j), c(i, j) + V(j) ) ),

where M(i, j) is the peak of segment [i, j) itself (its forward, its recomputation, its backward, natural bytes
included) and c(i, j) the bytes that the cut at j keeps of what the segment made.

`Segments` has c and M. For each i it bounds M(i, j) from below for all j at once, so that M itself is worked out only
for those j that can be best: O(n^2) numpy operations on integers, and in practice a few segments per i.

A plan of a set of cuts is mostly better than its formula: what turns out not to be needed is not kept, and what is
kept goes at its last need. Segments follow that exactly but for what depends on cuts before i; there the program runs
once with the worse and once with the better assumption. The second gives a lower bound for all sets of cuts, and where
the plan's peak equals it, the plan is proven to be the best of its class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from lowtide.planning.frontiers import Frontiers
from lowtide.planning.progress import Progress, silent
from lowtide.planning.segments import FAR, Segments
from lowtide.planning.simulate import keep_all, simulate
from lowtide.planning.step import Step
from lowtide.units import format_percent

Lists = tuple[frozenset[int], Mapping[int, tuple[int, ...]]]


@dataclass(frozen=True)
class Found:
    """What the search found.

    Attributes:
        keep, runs: the plan's lists.
        cuts: its cuts; empty, too, if no plan is better than none.
        peak_bytes: its simulated peak.
        least_bytes: no set of cuts has a lower one.
    """

    keep: frozenset[int]
    runs: Mapping[int, tuple[int, ...]]
    cuts: tuple[int, ...]
    peak_bytes: int
    least_bytes: int

    @property
    def status(self) -> str:
        """One sentence for people."""
        if self.peak_bytes <= self.least_bytes:
            return "least peak of all cuts with one recomputation of any op, proven"
        gap = format_percent(self.peak_bytes / self.least_bytes - 1)
        return f"at most {gap} above the least peak of all cuts with one recomputation of any op"


def frontier(step: Step, progress: Progress | None = None) -> Lists:
    """The cuts of least peak, as a plan's lists (keep, runs); never above the peak without a plan.

    Args:
        progress: called with a fraction in [0, 1] now and then.
    """
    found = search(step, progress)
    return found.keep, found.runs


def search(step: Step, progress: Progress | None = None) -> Found:
    """As `frontier`, with what was found out on the way."""
    report = progress or silent
    fronts = Frontiers(step)
    baseline = simulate(step).peak_bytes
    nothing = Found(keep_all(step), {}, (), baseline, baseline)
    if fronts.n == 0 or not fronts.facts:
        return nothing
    cuts, _ = least_peak_cuts(fronts, lambda x: report(0.4 * x))
    others, least = least_peak_cuts(fronts, lambda x: report(0.4 + 0.4 * x), optimistic=True)
    cuts = min(cuts, others, key=lambda c: judged(fronts, c)[0])
    cuts = polished(fronts, cuts, lambda x: report(0.8 + 0.2 * x))
    (peak, *_), (keep, runs) = judged(fronts, cuts)
    report(1.0)
    least = min(least, baseline)
    return Found(keep, runs, cuts, peak, least) if peak < baseline else replace(nothing, least_bytes=least)


def least_peak_cuts(
    fronts: Frontiers, progress: Progress | None = None, optimistic: bool = False
) -> tuple[tuple[int, ...], int]:
    """The dynamic program: the cuts, and the peak in bytes that it promises for them.

    Args:
        optimistic: where the state leaves something open, promise the least: no cuts have a lower peak than promised.
    """
    state = Segments(fronts, optimistic)
    n = fronts.n
    value = np.full(n + 1, FAR, dtype=np.int64)
    following = [n] * (n + 1)
    for i in range(n - 1, -1, -1):
        state.enter(i)
        if i and not fronts.allowed[i]:
            continue
        rows = state.rows(i)
        best, at = rows.last_segment, n
        if i + 1 < n:
            ahead = np.arange(i + 1, n)
            kept = state.ahead_bytes(i) + value[i + 1 : n]
            least = np.maximum(rows.lower_bound(ahead), kept)
            while True:
                k = int(np.argmin(least))
                if least[k] >= best:
                    break
                j = i + 1 + k
                peak = max(rows.segment(j), int(kept[k]))
                if peak < best:
                    best, at = peak, j
                least[k] = FAR
        value[i], following[i] = best, at
        if progress is not None and i % 64 == 0:
            progress(1 - i / n)
    cuts: list[int] = []
    at = following[0]
    while at < n:
        cuts.append(at)
        at = following[at]
    return tuple(cuts), int(value[0])


def judged(fronts: Frontiers, cuts: tuple[int, ...]) -> tuple[tuple[int, int, int], Lists]:
    """The plan of `cuts`, and its simulated peak in bytes, FLOPs and ops run again: less is better, in this order."""
    lists = fronts.lift(cuts)
    t = simulate(fronts.step, lists)
    return (t.peak_bytes, t.recompute_flops, t.recompute_ops), lists


def polished(fronts: Frontiers, cuts: tuple[int, ...], progress: Progress | None = None) -> tuple[int, ...]:
    """`cuts` after trying to leave out or to move single ones, as the simulator judges it: less peak, or as much peak
    and less work. The number of tries is fixed by the step's size."""
    cost, _ = judged(fronts, cuts)
    budget = tries = max(16, 40_000 // fronts.n)
    improved = True
    while improved and tries > 0:
        improved = False
        for candidate in _neighbours(fronts, cuts):
            if tries == 0:
                break
            tries -= 1
            if progress is not None and tries % 16 == 0:
                progress(1 - tries / budget)
            new_cost, _ = judged(fronts, candidate)
            if new_cost < cost:
                cost, cuts, improved = new_cost, candidate, True
                break
    return cuts


def _neighbours(fronts: Frontiers, cuts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for k in range(len(cuts) - 1, -1, -1):
        yield (*cuts[:k], *cuts[k + 1 :])
    for k, c in enumerate(cuts):
        low = cuts[k - 1] if k else 0
        high = cuts[k + 1] if k + 1 < len(cuts) else fronts.n
        down = next((p for p in range(c - 1, low, -1) if fronts.allowed[p]), None)
        up = next((p for p in range(c + 1, high) if fronts.allowed[p]), None)
        for p in (down, up):
            if p is not None:
                yield (*cuts[:k], p, *cuts[k + 1 :])
