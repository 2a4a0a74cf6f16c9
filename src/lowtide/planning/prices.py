"""prices: what is worth keeping if memory has a price, and how little time any plan can take under a budget.

Let a byte that is kept at moment m cost prices[m] seconds. What to keep and what to run again, at the least cost in
all, is a cheapest cut: a value that backward asks for is kept or its op runs again, and an op that runs again wants
what it reads. The edges source -> op cost the op's seconds, op -> value the price of keeping what it wrote, and the
others must not be cut. With one rising price, for the moment at which backward begins, the answer goes from keeping all
to keeping nothing by some corners: the only plans that matter if memory counts at that moment alone.

For any prices at all, the least cost and prices * (bytes that no plan can avoid - budget), summed over the moments, are
together at most the time that a plan within the budget adds, however often it runs ops: the constraints relaxed by
Lagrange. Prices that make this large are found by going along the subgradient: dearer where the cut is above the
budget, cheaper where it is below.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from lowtide.planning.frontiers import Fact, Frontiers
from lowtide.planning.mincut import FAR, Network
from lowtide.planning.schedule import handed_until

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Corner:
    """What to keep at some prices.

    Attributes:
        keep: values worth keeping.
        nbytes: their bytes as backward begins.
        seconds: time of the ops that run again, once each.
        cost: least cost in all, in seconds; never above the true one.
    """

    keep: frozenset[int]
    nbytes: int
    seconds: float
    cost: float


class Market:
    """The cut problem of one step.

    Attributes:
        level: per moment the bytes that are there in every plan: natural ones, values that must be kept, and values
            that backward was handed and has not let go of.
    """

    def __init__(self, fronts: Frontiers) -> None:
        self.fronts = fronts
        step = self.step = fronts.step
        self.seconds = step.seconds or (1.0,) * len(step.ops)
        self.total_s = sum(self.seconds[: fronts.n]) or 1.0
        self.unit = self.total_s / 2**45  # seconds per unit of capacity
        self.facts: list[Fact] = []
        self.spans: list[list[tuple[int, int]]] = []  # per fact, when keeping it takes bytes that it takes only then
        change = np.zeros(step.n_moments + 1, dtype=np.int64)
        for f in fronts.facts.values():
            if f.free:
                continue
            held = self._handed(f)
            if f.always:
                held = [(f.death, f.kept_until)] if f.dropped_until else []
            else:
                self.facts.append(f)
                self.spans.append(_without((max(f.death, step.ops[f.born].moment), self._kept_until(f)), held))
            for a, b in held:
                if b > a:
                    change[a] += f.nbytes
                    change[min(b, step.n_moments)] -= f.nbytes
        self.level: Ints = np.array(step.base_bytes, dtype=np.int64) + np.cumsum(change[:-1])
        self.node = {f.value: k + 2 + fronts.n for k, f in enumerate(self.facts)}
        self.least_nbytes = min((f.nbytes for f in self.facts if f.nbytes), default=1)

    def _kept_until(self, f: Fact) -> int:
        """Until when `f` is certainly held if it is kept: what is no saved tensor, until something can be rebuilt."""
        return f.kept_until if f.dropped_until else self.fronts.begin + 1

    def _handed(self, f: Fact) -> list[tuple[int, int]]:
        """When `f` is in the graph's hands, in storage of its own, kept or not."""
        step = self.step
        spans: list[tuple[int, int]] = []
        asked = [
            (u, handed_until(step, s, k))
            for s in step.saves_of.get(f.value, ())
            for k, u in enumerate(step.saves[s].uses)
        ]
        last = f.death
        over = step.values[f.value].overwritten
        if over >= 0:
            last = min(last, step.ops[over].moment)
        for a, b in sorted(asked):
            a = max(a, last)
            if b > a:
                spans.append((a, b))
                last = b
        return spans

    def at(self, price: float) -> Corner:
        """What to keep if a byte costs `price` seconds as backward begins."""
        prices = np.zeros(self.step.n_moments)
        prices[min(self.fronts.begin, self.step.n_moments - 1)] = price
        return self.priced(prices)

    def priced(self, prices: Floats) -> Corner:
        """What to keep at `prices`, seconds per byte and moment."""
        fronts, step = self.fronts, self.step
        upto = np.concatenate([[0.0], np.cumsum(prices)])
        net = Network(2 + fronts.n + len(self.facts))
        for o in range(fronts.n):
            if fronts.relevant[o]:
                net.edge(0, 2 + o, FAR if fronts.stuck[o] else int(self.seconds[o] / self.unit))
                for r in step.ops[o].reads:
                    if r in self.node:
                        net.edge(self.node[r], 2 + o, FAR)
        for f, spans in zip(self.facts, self.spans, strict=True):
            node = self.node[f.value]
            if step.values[f.value].overwritten >= 0:
                capacity = FAR
            else:
                capacity = int(f.nbytes * sum(float(upto[b] - upto[a]) for a, b in spans) / self.unit)
            net.edge(2 + f.born, node, capacity)
            if f.dropped_until:
                net.edge(node, 1, FAR)
        side = net.cut(0, 1)
        kept = [f for f in self.facts if side[self.node[f.value]] and not side[2 + f.born]]
        begin = fronts.begin
        return Corner(
            keep=frozenset(f.value for f in kept),
            nbytes=sum(f.nbytes for f in kept if f.death <= begin),
            seconds=sum(self.seconds[o] for o in range(fronts.n) if side[2 + o]),
            cost=net.flow * self.unit,
        )

    def corners(self, limit: int = 12) -> list[Corner]:
        """The corners between keeping all and keeping least, bytes falling, at most `limit` of them."""
        high = self.at(1e-9 * self.total_s / max(1, sum(f.nbytes for f in self.facts)))
        low = self.at(2 * self.total_s / self.least_nbytes)
        found = {high.nbytes: high, low.nbytes: low}
        gaps = [(high, low)]
        while gaps and len(found) < limit:
            # The gap that promises most: the largest triangle between two corners.
            gaps.sort(key=lambda g: (g[0].nbytes - g[1].nbytes) * (g[1].seconds - g[0].seconds))
            a, b = gaps.pop()
            if a.nbytes <= b.nbytes or b.seconds <= a.seconds:
                continue
            c = self.at((b.seconds - a.seconds) / (a.nbytes - b.nbytes))
            if c.nbytes not in found and b.nbytes < c.nbytes < a.nbytes:
                found[c.nbytes] = c
                gaps += [(a, c), (c, b)]
        return [found[n] for n in sorted(found, reverse=True)]

    def curve(self, corner: Corner) -> Ints:
        """Bytes per moment that a corner takes at least."""
        change = np.zeros(self.step.n_moments + 1, dtype=np.int64)
        for f, spans in zip(self.facts, self.spans, strict=True):
            if f.value in corner.keep:
                for a, b in spans:
                    change[a] += f.nbytes
                    change[min(b, self.step.n_moments)] -= f.nbytes
        return self.level + np.cumsum(change[:-1])

    def least_added_s(self, corners: list[Corner], budget: int, rounds: int = 40) -> float:
        """No plan whose peak is at most `budget` adds fewer seconds; a bound, not always reached.

        Args:
            corners: of this market, to start from.
            rounds: how many cuts to make for it.
        """
        if not self.facts:
            return 0.0
        prices = np.zeros(self.step.n_moments)
        start = min(self.fronts.begin, self.step.n_moments - 1)
        free = budget - int(self.level[start])
        slope = [
            (b.seconds - a.seconds) / (a.nbytes - b.nbytes) for a, b in pairwise(corners) if a.nbytes > free >= b.nbytes
        ]
        prices[start] = slope[0] if slope else 0.0
        best = 0.0
        best_prices = prices
        target = self.total_s  # Polyak's step aims a little above the best so far
        stretch = 1.0
        for k in range(rounds):
            corner = self.priced(prices)
            bound = corner.cost + float((prices * (self.level - budget)).sum())
            if bound > best * (1 + 1e-4) + 1e-15:
                best, best_prices = bound, prices
            elif k % 4 == 3:
                stretch /= 2
                prices = best_prices
                corner = self.priced(prices)
                bound = best
            excess = (self.curve(corner) - budget).astype(np.float64)
            slack = np.where((excess < 0) & (prices <= 0), 0.0, excess)
            norm = float((slack**2).sum())
            if norm <= 0:
                break
            target = max(best * 1.5, 0.02 * self.total_s)
            step_size = stretch * max(target - bound, 0.01 * self.total_s) / norm
            prices = np.maximum(prices + step_size * slack, 0.0)
        return best


def _without(span: tuple[int, int], holes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is left of a span of moments; `holes` in order, none overlapping another."""
    out: list[tuple[int, int]] = []
    start, end = span
    for a, b in holes:
        if a > start:
            out.append((start, min(a, end)))
        start = max(start, b)
        if start >= end:
            return out
    if end > start:
        out.append((start, end))
    return out
