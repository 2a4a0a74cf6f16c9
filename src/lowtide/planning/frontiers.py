"""Frontiers: where the forward of a step can be cut, what a cut keeps, and the plan that a set of cuts means.

Positions 0..n lie between the n forward ops. The frontier L(p) holds the values made before p and needed at or after
p: by a forward op that may run again, or by a save whose backward belongs there. A set of cuts keeps their frontiers,
drops everything else but what the last segment saved, and runs each earlier segment again, once, when backward first
asks it for a dropped value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from lowtide.planning.step import Step


@dataclass(frozen=True, slots=True)
class Fact:
    """What matters about one value that is not external and is needed in backward.

    Attributes:
        value, nbytes: its id and size.
        born: forward op that writes it.
        first, last: least and greatest position that needs it; `last` is n for values that are always kept.
        first_asked: least position whose backward asks for it, n if none does.
        asked: moment of the first use of its saves, or n_moments if nothing asks for it.
        dropped_until: moment at which the graph lets go of it if it was dropped (0: nothing asks for it).
        kept_until: the same if it was kept: unused saves hold it, too.
        death: natural death of its storage.
        always: it is kept in every plan: what made it cannot run again, or backward asks for it out of order.
        free: it is naturally alive as long as anything may want it: it is kept, and costs nothing.
    """

    value: int
    nbytes: int
    born: int
    first: int
    last: int
    first_asked: int
    asked: int
    dropped_until: int
    kept_until: int
    death: int
    always: bool
    free: bool


class Frontiers:
    """The facts about cuts of one step, prepared in linear time.

    Attributes:
        n: number of forward ops.
        begin: the moment at which backward begins.
        before: per position p the first moment of backward that belongs to a position < p. The backward of segment
            [i, j) is the moments from `before[j]` to `before[i]`. Length n + 1.
        facts: value id -> Fact.
        made: per forward op the facts of what it writes.
        relevant: per forward op, whether it can be of use to run it again.
        readers: value id -> relevant ops that read it.
        allowed: per position whether a cut may be there, n + 1 flags; 0 and n are never.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self.n = n = step.n_forward
        self.begin = max((op.moment for op in step.ops[:n]), default=-1) + 1
        self._position: list[int] = []  # per moment from `begin` on; never rising, the optimizer belongs to 0
        here = max(n - 1, 0)
        for p in step.positions[self.begin :]:
            here = min(here, max(p, 0))
            self._position.append(here)
        self.before = self._before()
        self.stuck = self._stuck()
        self.relevant, self.readers = self._relevant()
        self.facts: dict[int, Fact] = {}
        self.made: list[list[Fact]] = [[] for _ in range(n)]
        for o in range(n):
            for v in step.ops[o].writes:
                fact = self._fact(v, self.readers.get(v, []))
                if fact is not None:
                    self.facts[v] = fact
                    self.made[o].append(fact)
        self.allowed = self._allowed()

    def _before(self) -> list[int]:
        before = [self.step.n_moments] * (self.n + 1)
        p = self.n
        for k, here in enumerate(self._position):
            while p > here:
                before[p] = self.begin + k
                p -= 1
        return before

    def _stuck(self) -> list[bool]:
        """Per forward op whether it cannot run again: pinned, or it reads what can be neither kept nor made again."""
        step = self.step
        stuck: list[bool] = []
        for op in step.ops[: self.n]:
            bad = bool(op.pinned)
            for r in op.reads:
                value = step.values[r]
                if value.overwritten < 0:
                    bad = bad or (value.op < 0 and not step.storages[value.storage].external)
                else:
                    bad = bad or value.op < 0 or value.op >= self.n or stuck[value.op]
            stuck.append(bad)
        return stuck

    def _used(self, v: int) -> list[int]:
        return [s for s in self.step.saves_of.get(v, ()) if self.step.saves[s].uses]

    def _relevant(self) -> tuple[list[bool], dict[int, list[int]]]:
        """Which ops may be run again in some plan, and value -> such ops that read it."""
        step = self.step
        relevant = [False] * self.n
        readers: dict[int, list[int]] = {}
        for o in range(self.n - 1, -1, -1):
            op = step.ops[o]
            if self.stuck[o] or not any(not step.is_external(w) and (w in readers or self._used(w)) for w in op.writes):
                continue
            relevant[o] = True
            for r in op.reads:
                if not step.is_external(r):
                    readers.setdefault(r, []).append(o)
        return relevant, readers

    def _fact(self, v: int, readers: list[int]) -> Fact | None:
        step = self.step
        used = self._used(v)
        if step.is_external(v) or not (used or readers):
            return None
        value = step.values[v]
        storage = step.storages[value.storage]
        saves = [step.saves[s] for s in used]
        moments = [s.uses[0] for s in saves]
        positions = [self._position[m - self.begin] if m >= self.begin else -1 for m in moments]
        first, last = min(positions + readers), max(positions + readers)
        always = self.stuck[value.op] or first < value.op
        kept_until = max((step.saves[s].release for s in step.saves_of.get(v, ())), default=0)
        lost = value.overwritten >= 0
        free = not lost and storage.death >= max(kept_until, self.before[max(first, 0)])
        return Fact(
            value=v,
            nbytes=storage.nbytes,
            born=value.op,
            first=first,
            last=self.n if always else last,
            first_asked=min(positions, default=self.n),
            asked=min(moments, default=step.n_moments),
            dropped_until=max((s.release for s in saves), default=0),
            kept_until=kept_until,
            death=storage.death,
            always=always and not lost,
            free=free,
        )

    def _allowed(self) -> list[bool]:
        """No cut where the frontier holds a version that is overwritten later on: it cannot be kept."""
        blocked = [0] * (self.n + 2)
        for f in self.facts.values():
            over = self.step.values[f.value].overwritten
            if over >= 0:
                end = min(f.last, over)
                if end > f.born:
                    blocked[f.born + 1] += 1
                    blocked[end + 1] -= 1
        allowed, depth = [False] * (self.n + 1), 0
        for p in range(1, self.n):
            depth += blocked[p]
            allowed[p] = depth == 0
        return allowed

    def frontier(self, p: int) -> list[Fact]:
        """L(p), with what every plan keeps, without what costs nothing. Linear time."""
        return [f for f in self.facts.values() if f.born < p <= f.last and not f.free]

    def segment_runs(self, i: int, j: int, is_kept: Iterable[int] | frozenset[int]) -> list[int]:
        """The ops of [i, j) that must run again for what backward asks of it, in order, if `is_kept` is kept."""
        kept = is_kept if isinstance(is_kept, frozenset) else frozenset(is_kept)
        needed: set[int] = set()
        ops: list[int] = []
        for o in range(j - 1, i - 1, -1):
            if not self.relevant[o]:
                continue
            for f in self.made[o]:
                if f.value not in kept and (f.dropped_until or f.value in needed):
                    ops.append(o)
                    needed.update(self.step.ops[o].reads)
                    break
        ops.reverse()
        return ops

    def lift(self, cuts: Iterable[int]) -> tuple[frozenset[int], dict[int, tuple[int, ...]]]:
        """The plan of a set of cuts: (keep, runs). Values that turn out not to be needed are not kept."""
        edges = [0, *sorted(cuts), self.n]
        k, next_edge = len(edges) - 1, [0] * self.n
        for o in range(self.n - 1, -1, -1):
            while edges[k - 1] > o:
                k -= 1
            next_edge[o] = edges[k]
        last_cut = edges[-2]
        keep = {
            f.value
            for f in self.facts.values()
            if f.always
            or f.free
            or (f.dropped_until and f.born >= last_cut)
            or (f.born < last_cut and next_edge[f.born] <= f.last)
        }
        kept = frozenset(keep)
        runs: dict[int, tuple[int, ...]] = {}
        read: set[int] = set()
        for i, j in pairwise(edges[:-1]):
            asked = min(
                (f.asked for o in range(i, j) for f in self.made[o] if f.value not in kept and f.dropped_until),
                default=-1,
            )
            ops = self.segment_runs(i, j, kept) if asked >= 0 else []
            if ops:
                runs[asked] = tuple(ops)
                read.update(r for o in ops for r in self.step.ops[o].reads)
        keep = {v for v in keep if self.facts[v].dropped_until or v in read}
        return frozenset(keep), runs
