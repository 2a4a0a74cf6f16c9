"""Stretches: least added time under every budget at once, by a dynamic program over pieces of the forward pass.

A step is cut into stretches [i, j) at op-level frontiers, and each stretch gets a *regime*: what is kept from forward
on, and what is held once it was rebuilt; everything else of the stretch is rebuilt again for each node that asks. Pairs
of corners of the market (`prices`) make good regimes, and so do choices found otherwise. The cut's frontier is kept
whatever the regime says. With Opt(i, m) the least time added by the ops from i on, m bytes being there for everything
but what cuts before i keep,

    Opt(i, m) = min over j > i and regimes r with M_r(i, j) <= m of  T_r(i, j) + Opt(j, m - c_r(i, j)),

where c_r(i, j) is what the stretch keeps, M_r(i, j) the peak of its backward, T_r(i, j) the time of what it runs again.
This is rotor's recursion (Beaumont et al. 2019, section 4) with one recomputation of a segment, on
op-level frontiers and with choices inside of segments; memory comes in slots as there.

c, M and T are good guesses, not promises: what runs again depends on neighbours, and M leaves temporaries out. The
choices that come out are meant to be simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowtide.planning.frontiers import Fact, Frontiers
from lowtide.planning.lazy import Choice, Lazy
from lowtide.planning.prices import Corner
from lowtide.planning.schedule import handed_until

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Regime:
    """What a stretch keeps from forward on, and what it has at hand once it was rebuilt or kept: `keep | held`."""

    keep: frozenset[int]
    held: frozenset[int]


def pairs(corners: Sequence[Corner]) -> list[Regime]:
    """All regimes that hold a corner and keep another that is not larger."""
    return [Regime(c.keep, h.keep | c.keep) for k, c in enumerate(corners) for h in corners[: k + 1]]


def regime_of(lazy: Lazy, choice: Choice) -> Regime:
    """What a choice does, as a regime for all stretches."""
    return Regime(choice.keep, frozenset(v for v in lazy.fronts.facts if v not in choice.again) | choice.keep)


def cut_positions(fronts: Frontiers, limit: int) -> list[int]:
    """Where cuts may be worth their bytes: positions whose frontier is not larger than at their neighbours, at most
    about `limit` of them, the smallest of each window."""
    sizes = np.zeros(fronts.n + 2, dtype=np.int64)
    for f in fronts.facts.values():
        if not f.free and f.last > f.born:
            sizes[f.born + 1] += f.nbytes
            sizes[min(f.last, fronts.n) + 1] -= f.nbytes
    sizes = np.cumsum(sizes)
    allowed = [p for p in range(1, fronts.n) if fronts.allowed[p]]
    good = [
        p
        for k, p in enumerate(allowed)
        if (k == 0 or sizes[p] < sizes[allowed[k - 1]] or (sizes[p] == sizes[allowed[k - 1]] and p % 4 == 0))
        or (k + 1 < len(allowed) and sizes[p] < sizes[allowed[k + 1]])
    ]
    if len(good) <= limit:
        return good
    window = fronts.n / limit
    best: dict[int, int] = {}
    for p in good:
        w = int(p / window)
        if w not in best or sizes[p] < sizes[best[w]]:
            best[w] = p
    return sorted(best.values())


class Stretches:
    """The program for one step, solved for all budgets up to the peak without a plan.

    Attributes:
        cuts: 0, the positions where cuts may be, n.
        unit: bytes per slot.
    """

    def __init__(
        self,
        fronts: Frontiers,
        regimes: Sequence[Regime],
        limit_bytes: int,
        slots: int = 400,
        positions: int = 100,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        self.fronts, self.step = fronts, fronts.step
        self.cuts = [0, *cut_positions(fronts, positions), fronts.n]
        self.regimes = list(dict.fromkeys(regimes))
        self.unit = max(1, -(-limit_bytes // slots))
        self.width = limit_bytes // self.unit + 1
        self._sets()
        self._solve(progress or (lambda _: None))

    def _sets(self) -> None:
        """Per regime how often ops run for values that are rebuilt again."""
        self.again = np.zeros((len(self.regimes), self.fronts.n))
        bursts: list[list[int]] = []  # values asked for together by one node
        last = -2
        for m, what in enumerate(self.step.moments):
            if what < 0:
                v = self.step.saves[~what].value
                if v in self.fronts.facts:
                    if m != last + 1:
                        bursts.append([])
                    bursts[-1].append(v)
                    last = m
        facts = self.fronts.facts
        must = frozenset(f.value for f in facts.values() if f.always or f.free)
        rows: dict[frozenset[int], int] = {}
        for q, regime in enumerate(self.regimes):
            if regime.held in rows:
                self.again[q] = self.again[rows[regime.held]]
                continue
            rows[regime.held] = q
            there = regime.held | must
            for burst in bursts:
                needed: set[int] = set()
                todo = [v for v in burst if v not in there]
                while todo:
                    o = facts[todo.pop()].born
                    if o not in needed:
                        needed.add(o)
                        todo += [r for r in self.step.ops[o].reads if r in facts and r not in there]
                for o in needed:
                    self.again[q, o] += 1

    def _path(self) -> npt.NDArray[np.bool_]:
        """Per regime, op and cut j: whether the op runs for what is held, in a stretch that ends at j."""
        fronts = self.fronts
        needed = np.zeros((len(self.regimes), fronts.n, len(self.cuts)), dtype=np.bool_)
        at = np.array(self.cuts)
        after = np.searchsorted(at, np.arange(fronts.n + 1), side="right")  # first cut beyond a position
        for o in range(fronts.n - 1, -1, -1):
            if not fronts.relevant[o]:
                continue
            for f in fronts.made[o]:
                if f.always or f.free or f.last >= fronts.n:
                    continue
                j = int(after[max(f.last, o)])
                readers = fronts.readers.get(f.value, ())
                for q, r in enumerate(self.regimes):
                    if f.value in r.keep:
                        continue
                    if f.value in r.held:
                        needed[q, o, j:] = True
                    else:
                        for reader in readers:
                            needed[q, o, j:] |= needed[q, reader, j:]
        return needed

    def _solve(self, progress: Callable[[float], None]) -> None:
        fronts, step = self.fronts, self.step
        n, begin = fronts.n, fronts.begin
        n_cuts, n_regimes = len(self.cuts), len(self.regimes)
        seconds = step.seconds or (1.0,) * len(step.ops)
        path = self._path()
        base = np.array(step.base_bytes[begin:], dtype=np.int64)
        level_d = np.zeros((n_regimes, step.n_moments - begin + 1), dtype=np.int64)
        kept_bytes = np.zeros((n_regimes, n_cuts), dtype=np.int64)  # c, of what is made from i on
        extra = np.zeros((n_regimes, n_cuts), dtype=np.int64)  # of the frontier at j, what the level leaves out
        time = np.zeros((n_regimes, n_cuts))
        again = self.again
        at = np.array(self.cuts)
        first_moment = np.minimum(np.array(fronts.before)[at] - begin, len(base))
        self.best = np.full((n_cuts, self.width), np.inf)
        self.best[-1] = 0.0
        self.taken = np.zeros((n_cuts, self.width), dtype=np.int64)  # regime * n_cuts + index of j
        slots = np.arange(self.width)
        index = {p: k for k, p in enumerate(self.cuts)}
        for i in range(n - 1, -1, -1):
            if fronts.relevant[i]:
                time += seconds[i] * (path[:, i] + again[:, i, None])
            for f in fronts.made[i]:
                self._enter(f, level_d, kept_bytes, extra, at)
            here = index.get(i)
            if here is None:
                continue
            end = int(first_moment[here])
            level = base[:end] + np.cumsum(level_d[:, :end], axis=1)
            least = np.zeros((n_regimes, end + 1), dtype=np.int64)
            least[:, :end] = np.maximum.accumulate(level[:, ::-1], axis=1)[:, ::-1]
            ahead = np.arange(here + 1, n_cuts)
            peak = least[:, np.minimum(first_moment[ahead], end)] + extra[:, ahead]
            need = -(-peak // self.unit)
            cost = -(-kept_bytes[:, ahead] // self.unit)
            for q in range(n_regimes):
                left = slots[None, :] - cost[q][:, None]
                total = np.where(left >= 0, self.best[ahead[:, None], np.maximum(left, 0)], np.inf)
                total = np.where(slots[None, :] >= need[q][:, None], total + time[q, ahead][:, None], np.inf)
                k = np.argmin(total, axis=0)
                found = total[k, slots]
                better = found < self.best[here] - 1e-15
                self.best[here] = np.where(better, found, self.best[here])
                self.taken[here] = np.where(better, q * n_cuts + ahead[k], self.taken[here])
            progress(1 - i / n)

    def _enter(self, f: Fact, level_d: Ints, kept_bytes: Ints, extra: Ints, at: Ints) -> None:
        """Count a value that is made from i on."""
        if f.free:
            return
        fronts, step = self.fronts, self.step
        begin = fronts.begin
        crossing = (at > f.born) & (at <= f.last)
        start = max(f.death - begin, 0)
        until = (f.dropped_until if f.dropped_until else fronts.before[max(f.first, 0)]) - begin
        kept_until = max(until, f.kept_until - begin)
        bursts: list[tuple[int, int]] = []
        for s in step.saves_of.get(f.value, ()):
            for k, u in enumerate(step.saves[s].uses):
                bursts.append((u - begin, handed_until(step, s, k) - begin))
        merged: list[tuple[int, int]] = []
        for a, b in sorted(bursts):
            a = max(a, merged[-1][1] if merged else start)
            if b > a:
                merged.append((a, b))
        for q, r in enumerate(self.regimes):
            if f.always or f.value in r.keep:
                if kept_until > start:
                    level_d[q, start] += f.nbytes
                    level_d[q, kept_until] -= f.nbytes
                kept_bytes[q, at > f.born] += f.nbytes
                continue
            kept_bytes[q, crossing] += f.nbytes
            if f.value in r.held:
                if until > start:
                    level_d[q, start] += f.nbytes
                    level_d[q, until] -= f.nbytes
            else:
                extra[q, crossing] += f.nbytes
                for a, b in merged:
                    level_d[q, a] += f.nbytes
                    level_d[q, b] -= f.nbytes

    def choice(self, slot: int) -> Choice | None:
        """The choice for a budget of `slot` slots, None if nothing fits into it."""
        stretches = self.stretches(slot)
        return self._choice_of(stretches) if stretches else None

    def stretches(self, slot: int) -> list[tuple[int, int, Regime]]:
        """Its stretches [i, j) with their regimes; empty if nothing fits."""
        here, m = 0, min(slot, self.width - 1)
        stretches: list[tuple[int, int, Regime]] = []
        if m < 0 or not np.isfinite(self.best[0, m]):
            return stretches
        n_cuts = len(self.cuts)
        while here < n_cuts - 1:
            q, j = divmod(int(self.taken[here, m]), n_cuts)
            stretches.append((self.cuts[here], self.cuts[j], self.regimes[q]))
            m -= self._cost(here, j, self.regimes[q])
            here = j
        return stretches

    def _cost(self, here: int, j: int, r: Regime) -> int:
        """c in slots."""
        i, end = self.cuts[here], self.cuts[j]
        total = 0
        for o in range(i, end):
            for f in self.fronts.made[o]:
                if f.free:
                    continue
                if f.always or f.value in r.keep or f.born < end <= f.last:
                    total += f.nbytes
        return -(-total // self.unit)

    def _choice_of(self, stretches: list[tuple[int, int, Regime]]) -> Choice:
        keep: set[int] = set()
        again: set[int] = set()
        for i, j, r in stretches:
            for o in range(i, j):
                for f in self.fronts.made[o]:
                    crosses = f.last >= j and j < self.fronts.n
                    if f.always or f.free or crosses or f.value in r.keep:
                        keep.add(f.value)
                    elif f.value not in r.held:
                        again.add(f.value)
        return Choice(frozenset(keep), frozenset(again))
