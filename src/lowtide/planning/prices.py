"""prices: what is worth keeping if memory has a price, and how little time any plan can take under a budget.

Let a kept byte cost `price` seconds. What to keep and what to run again, at the least cost in all, is a cheapest cut:
a value that backward wants is kept or its op runs again, and an op that runs again wants what it reads. The edges
source -> op cost the op's seconds, op -> value the price of keeping what it wrote, and the rest must not be cut. With
rising price the answer goes from keeping all to keeping nothing by some corners, the only plans that matter if memory
counts at one moment only. (The cut without prices and times is how torch.compile's partitioner chooses what to save.)

At moment m a plan holds what it kept for later, so that kept bytes plus natural bytes fit the budget there. Hence
cost(price) - price * (budget - natural bytes) is at most the time that any plan adds, for every price: what Lagrange
says of a relaxed constraint. It holds for plans with any number of runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lowtide.planning.frontiers import Fact, Frontiers
from lowtide.planning.mincut import FAR, Network

_UNIT = 1e-13  # seconds per unit of capacity


@dataclass(frozen=True)
class Corner:
    """What to keep at some price.

    Attributes:
        keep: values worth keeping.
        nbytes: their bytes at the moment in question.
        seconds: time of the ops that run again, once each.
    """

    keep: frozenset[int]
    nbytes: int
    seconds: float


class Market:
    """The cut problem of one step at one moment of backward.

    Attributes:
        moment: when memory counts.
        room: bytes of `moment` that no plan changes, those of values that every plan keeps included.
    """

    def __init__(self, fronts: Frontiers, moment: int | None = None) -> None:
        self.fronts = fronts
        step = self.step = fronts.step
        self.moment = fronts.begin if moment is None else moment
        self.room = step.base_bytes[self.moment]
        self.facts: list[Fact] = []
        for f in fronts.facts.values():
            if not (f.always or f.free):
                self.facts.append(f)
            elif f.always and f.dropped_until and f.death <= self.moment < f.kept_until:
                self.room += f.nbytes
        self.node = {f.value: k + 2 + fronts.n for k, f in enumerate(self.facts)}
        self.wanted = {
            s.value for s in step.saves if any(u >= self.moment for u in s.uses) and s.value in self.node
        }

    def _counts(self, f: Fact) -> int:
        """Bytes that keeping `f` takes at the moment."""
        return f.nbytes if f.death <= self.moment else 0

    def at(self, price: float) -> Corner:
        """What to keep at `price` seconds per byte."""
        fronts, step = self.fronts, self.step
        net = Network(2 + fronts.n + len(self.facts))
        for o in range(fronts.n):
            if fronts.relevant[o]:
                seconds = max(1, round(step.seconds[o] / _UNIT)) if step.seconds else 1
                net.edge(0, 2 + o, FAR if fronts.stuck[o] else seconds)
                for r in step.ops[o].reads:
                    if r in self.node:
                        net.edge(self.node[r], 2 + o, FAR)
        for f in self.facts:
            lost = step.values[f.value].overwritten >= 0
            net.edge(2 + f.born, self.node[f.value], FAR if lost else round(price * self._counts(f) / _UNIT))
            if f.value in self.wanted:
                net.edge(self.node[f.value], 1, FAR)
        side = net.cut(0, 1)
        keep = frozenset(f.value for f in self.facts if side[self.node[f.value]] and not side[2 + f.born])
        seconds = sum(step.seconds[o] for o in range(fronts.n) if side[2 + o]) if step.seconds else 0.0
        return Corner(keep, sum(self._counts(f) for f in self.facts if f.value in keep), seconds)

    def corners(self, limit: int = 12) -> list[Corner]:
        """The corners between keeping all and keeping least, bytes falling, at most `limit` of them."""
        total = sum(self.step.seconds[: self.fronts.n]) or 1.0
        least = max(1, min((f.nbytes for f in self.facts if f.nbytes), default=1))
        high = self.at(1e-12 * total / max(1, sum(f.nbytes for f in self.facts)))
        low = self.at(2 * total / least)
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

    def least_added_s(self, corners: Iterable[Corner], budget: int) -> float:
        """No plan whose peak is at most `budget` adds fewer seconds. Infinite if not even the least corner fits.

        `corners` are all corners, or some: the lower hull of some is not a bound, so the answer is that of the prices
        between neighbours, each asked for anew.
        """
        free = budget - self.room
        ordered = sorted(corners, key=lambda c: c.nbytes)
        if not ordered or ordered[-1].nbytes <= free:
            return 0.0
        if free < ordered[0].nbytes:
            return float("inf")
        best = 0.0
        low, high = 0.0, 0.0
        for a, b in zip(ordered, ordered[1:], strict=False):
            if a.nbytes <= free < b.nbytes:
                low, high = a.nbytes, b.nbytes
                for _ in range(24):  # the price at which the answer just fits
                    price = (a.seconds - b.seconds) / max(1, b.nbytes - a.nbytes)
                    c = self.at(price)
                    best = max(best, c.seconds + price * (c.nbytes - free))
                    if not low < c.nbytes < high:
                        break
                    if c.nbytes <= free:
                        a, low = c, c.nbytes
                    else:
                        b, high = c, c.nbytes
        return best
