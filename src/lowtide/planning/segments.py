"""Segments: the memory of every piece [i, j) of a step that a plan of cuts recomputes, for solvers that go over all i.

What a segment needs is told in bytes above those that the cuts up to i keep, so that it holds for all ways to get to i:

* c(i, j), the bytes that a cut at j keeps of what [i, j) made. They add up along a row of cuts, since a value is made
  in one segment (DESIGN, fact 5);
* M(i, j), the peak while [i, j) runs forward, is recomputed, and runs backward, natural bytes included;
* M(i, n), the same for the last segment, of which everything that it saves is kept.

For each i, vectors over moments and over j, updated from those for i + 1, give c(i, j), M(i, n) and a lower bound of
M(i, j) that lacks little but the temporaries of the recomputation. M(i, j) itself takes time linear in the segment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from lowtide.planning.frontiers import Fact, Frontiers

Vector = npt.NDArray[np.int64]

FAR = np.int64(1) << 60  # more than any peak


class Segments:
    """Vectors that grow as the front of the segments, i, goes down. Moments index those over time, positions those
    over j; those ending in `_d` are differences of what they say.

    Two things depend on cuts before i, which are not known yet: whether a value of L(i) is wanted by a run before i,
    and whether one that is naturally alive beyond its last need was kept. Segments take the worse of both, so that
    peaks are never below the simulated ones but for unused saves; with `optimistic` the better, so that what they say
    is a lower bound. On nearly all steps the two agree.

    Attributes:
        cut_bytes: per j, c(i, j).
        asks: per j, the moment at which segment [i, j) is first asked for a dropped value.
        held: per moment of backward, the bytes made at or after i that are then recomputed, or kept, and wanted.
        saved_d: per moment, the bytes made at or after i that are held beyond their natural life if all is kept.
        always_d: per moment of forward, the same for what every plan keeps.
        natural_d: per moment, the bytes of L(i) that are naturally alive, so that they are counted twice.
        gone_d: per moment, the bytes of L(i) that nothing before i wants, once they are let go of.
        unread_d: the same if nothing is run again, as in the last segment, minus `gone_d`.
    """

    def __init__(self, fronts: Frontiers, optimistic: bool = False) -> None:
        step = fronts.step
        self.optimistic = optimistic
        n, moments = fronts.n, step.n_moments
        self.fronts, self.step = fronts, step
        self.size = [0 if step.storages[v.storage].external else step.storages[v.storage].nbytes for v in step.values]
        self.begin = fronts.begin
        self.moment = np.array([op.moment for op in step.ops[:n]] + [fronts.begin], dtype=np.int64)
        self.before = np.array(fronts.before, dtype=np.int64)
        self.base = np.array(step.base_bytes, dtype=np.int64)
        self.cut_bytes = np.zeros(n + 1, dtype=np.int64)
        self.asks = np.full(n + 1, moments, dtype=np.int64)
        self.held = np.zeros(moments, dtype=np.int64)
        self.saved_d = np.zeros(moments + 1, dtype=np.int64)
        self.always_d = np.zeros(moments + 1, dtype=np.int64)
        self.natural_d = np.zeros(moments + 1, dtype=np.int64)
        self.gone_d = np.zeros(moments + 1, dtype=np.int64)
        self.unread_d = np.zeros(moments + 1, dtype=np.int64)
        # What comes and goes as i comes down to the key.
        self.front_in: dict[int, list[Fact]] = {}
        self.spare_in: dict[int, list[Fact]] = {}
        self.front: dict[int, Fact] = {}  # L(i)
        self.spare: dict[int, Fact] = {}  # those of L(i) that nothing before i wants
        self.needed = _needed(fronts)
        # Values that the graph holds on to beyond the backward of what made them, into that of segments before.
        self.lingering = [f for f in fronts.facts.values() if not f.free and _let_go(f) > fronts.before[f.born]]
        for f in fronts.facts.values():
            if f.free:
                continue
            self.front_in.setdefault(n if optimistic else f.last, []).append(f)
            first = self._surely_wanted(f) if optimistic else f.first
            self.spare_in.setdefault(min(max(first, f.born), f.last), []).append(f)
        self._cross(n)

    def _surely_wanted(self, f: Fact) -> int:
        """The least position that wants `f` whatever the cuts are: a run there is sure if it is needed even for the
        nearest cut."""
        sure = [f.first_asked]
        for r in self.fronts.readers.get(f.value, ()):
            cut = next((p for p in range(r + 1, self.fronts.n) if self.fronts.allowed[p]), self.fronts.n)
            if self.needed[r, cut]:
                sure.append(r)
        return min(sure)

    def _cross(self, i: int) -> None:
        """L(i) from L(i + 1), but for what op i makes."""
        for f in self.front_in.get(i, ()):
            if f.born < i:
                self.front[f.value] = f
                self._natural(f, 1)
        for f in self.spare_in.get(i, ()):
            if f.born < i:
                self.spare[f.value] = f
                self._gone(f, 1)

    def _natural(self, f: Fact, sign: int) -> None:
        self.natural_d[0] += sign * f.nbytes
        self.natural_d[f.death] -= sign * f.nbytes

    def _gone(self, f: Fact, sign: int) -> None:
        if f.dropped_until:
            self.gone_d[max(f.kept_until, f.death)] += sign * f.nbytes
        else:
            start = max(f.death, self.begin)
            self.gone_d[f.death if self.optimistic else start] += sign * f.nbytes
            if not self.optimistic:
                self.unread_d[f.death] += sign * f.nbytes
                self.unread_d[start] -= sign * f.nbytes

    def enter(self, i: int) -> None:
        """Take op i into the segments: i is their front now."""
        n = self.fronts.n
        for f in self.fronts.made[i]:
            if f.free:
                continue
            if self.front.pop(f.value, None) is not None:
                self._natural(f, -1)
            if self.spare.pop(f.value, None) is not None:
                self._gone(f, -1)
            self.cut_bytes[i + 1 : min(f.last, n) + 1] += f.nbytes
            if f.dropped_until:
                self.held[max(f.death, self.begin) : _let_go(f)] += f.nbytes
                if f.kept_until > f.death:
                    self.saved_d[f.death] += f.nbytes
                    self.saved_d[f.kept_until] -= f.nbytes
                if not f.always:
                    np.minimum(self.asks[f.last + 1 :], f.asked, out=self.asks[f.last + 1 :])
            if f.always and f.death < self.begin and (f.dropped_until or not self.optimistic):
                self.always_d[f.death] += f.nbytes
                self.always_d[self.begin] -= f.nbytes
        self._cross(i)

    def ahead_bytes(self, i: int) -> Vector:
        """Per j in (i, n): c(i, j), less those values of L(i) that turn out not to be held at all, since neither
        [i, j) nor anything before it reads them."""
        n = self.fronts.n
        ahead = self.cut_bytes[i + 1 : n].copy()
        for f in self.spare.values():
            if not f.dropped_until and f.last + 1 < n:
                read = np.zeros(n - f.last - 1, dtype=np.bool_)
                for r in self.fronts.readers.get(f.value, ()):
                    if r >= i:
                        read |= self.needed[r, f.last + 1 : n]
                ahead[f.last - i :] -= np.where(read, 0, f.nbytes)
        return ahead

    def rows(self, i: int) -> Rows:
        return Rows(self, i)


class Rows:
    """Everything about segments [i, j) for one i."""

    def __init__(self, state: Segments, i: int) -> None:
        self.state, self.i = state, i
        self.start, self.begin, self.end = int(state.moment[i]), state.begin, int(state.before[i])
        natural = np.cumsum(state.natural_d[:-1])
        gone = np.cumsum(state.gone_d[:-1])
        level = state.base - natural - gone
        begin, end = self.begin, self.end
        saved = level + np.cumsum(state.saved_d[:-1] - state.unread_d[:-1])
        self.last_segment = int(saved[self.start : end].max())
        always = np.cumsum(state.always_d[:begin])
        self.forward_level = (level[:begin] + always)[self.start :]
        self.forward = np.maximum.accumulate(self.forward_level)
        self.idle = level[begin:]  # per moment of backward, without anything that the segment makes
        busy = self.idle[: end - begin] + state.held[begin:end]
        # From a moment of backward to the end of the segment's; a moment at the end and after, nothing.
        self.backward = np.full(len(state.base) - begin + 2, -FAR, dtype=np.int64)
        self.backward[: end - begin] = np.maximum.accumulate(busy[::-1])[::-1]
        self.busy = busy

    def lower_bound(self, j: Vector) -> Vector:
        """At most M(i, j), for each j."""
        s = self.state
        forward = self.forward[s.moment[j] - 1 - self.start]
        return np.maximum(forward, self.backward[s.asks[j] - self.begin])

    def segment(self, j: int) -> int:
        """M(i, j)."""
        s, i, end = self.state, self.i, self.end
        made = [f for o in range(i, j) for f in s.fronts.made[o]]
        kept = {f.value: f for f in made if f.free or f.last >= j}
        held = [f for f in kept.values() if not f.free]
        first, asked = int(s.before[j]), int(s.asks[j])
        lingering = [f for f in s.lingering if f.born >= j]
        peak = self._forward_peak(j, held)
        if asked >= end:  # everything that backward asks for is there
            return max(peak, self._idle_peak(first, end, held, lingering, frozenset()))
        ops = s.fronts.segment_runs(i, j, frozenset(kept))
        last_reader = {r: o for o in ops for r in s.step.ops[o].reads}
        peak = max(peak, self._idle_peak(first, asked, held, lingering, last_reader.keys()))
        peak = max(peak, self._running_peak(asked, ops, kept, lingering, last_reader))
        return max(peak, self._busy_peak(asked, [f for f in made if f.value not in kept and f.death > asked]))

    def _forward_peak(self, j: int, held: list[Fact]) -> int:
        stop = int(self.state.moment[j])
        early = [f for f in held if not f.always and f.dropped_until and f.death < stop]
        if not early:
            return int(self.forward[stop - 1 - self.start])
        level = self.forward_level[: stop - self.start].copy()
        for f in early:  # saved, though it died before the cut
            level[max(f.death - self.start, 0) :] += f.nbytes
        return int(level.max())

    def _idle_peak(self, start: int, end: int, held: list[Fact], lingering: list[Fact], read: Collection[int]) -> int:
        """Peak of backward from `start` to `end` while nothing is recomputed yet. `held` is what the segment made and
        the plan keeps, `lingering` what segments after it left, `read` what runs at `end` read."""
        if end <= start:
            return 0
        level = self.idle[start - self.begin : end - self.begin].copy()
        for f in held:
            until = end if f.value in read else f.kept_until if f.dropped_until else 0
            level[max(f.death - start, 0) : max(until - start, 0)] += f.nbytes
        for f in lingering:
            level[max(f.death - start, 0) : max(_let_go(f) - start, 0)] += f.nbytes
        for f in self.state.spare.values():
            if f.value in read:
                since = max(f.death, f.kept_until if f.dropped_until else 0)
                level[max(since - start, 0) :] += f.nbytes
        return int(level.max())

    def _running_peak(
        self,
        asked: int,
        ops: list[int],
        kept: Mapping[int, Fact],
        lingering: list[Fact],
        last_reader: Mapping[int, int],
    ) -> int:
        """Peak at the moment `asked`, while `ops` run again."""
        s = self.state
        step, size, facts = s.step, s.size, s.fronts.facts
        level = int(self.idle[asked - self.begin])
        level += sum(f.nbytes for f in lingering if f.death <= asked < _let_go(f))
        sources: dict[int, int] = {}  # what goes once its last reader has run: bytes
        for f in kept.values():
            if f.free or f.death > asked:
                continue
            if f.dropped_until and f.kept_until > asked:
                level += f.nbytes
            elif f.value in last_reader:
                level += f.nbytes
                sources[f.value] = f.nbytes
        for f in s.spare.values():
            gone = not f.dropped_until or f.kept_until <= asked
            if gone and f.death <= asked and f.value in last_reader:
                level += f.nbytes
                sources[f.value] = f.nbytes
        peak = level
        for o in ops:
            op = step.ops[o]
            reused = 0
            for old, _ in op.inplace:
                if old in sources and last_reader[old] == o and old not in kept:
                    reused += sources.pop(old)
            peak = max(peak, level + step.replay_scratch_bytes(o) + sum(size[w] for w in op.writes) - reused)
            level -= reused
            for w in op.writes:
                f = facts.get(w)
                if f is None or w in kept:
                    continue
                if f.dropped_until:
                    level += size[w]
                elif last_reader.get(w, -1) > o:
                    level += size[w]
                    sources[w] = size[w]
            for r in op.reads:
                if r in sources and last_reader[r] == o:
                    level -= sources.pop(r)
        return max(peak, level)

    def _busy_peak(self, asked: int, late: list[Fact]) -> int:
        """Peak of backward after the moment `asked`, with everything recomputed. `late`: what was, although naturally
        alive, and is in memory twice."""
        if not late or asked + 1 >= self.end:
            return int(self.backward[asked + 1 - self.begin])
        level = self.busy[asked + 1 - self.begin :].copy()
        for f in late:
            level[: max(min(f.death, f.dropped_until) - asked - 1, 0)] += f.nbytes
        return int(level.max())


def _let_go(f: Fact) -> int:
    """The moment at which the graph lets go of a value that backward asks for: saves that nothing asks for hold what is
    always kept, too. 0 if nothing asks for it."""
    return f.kept_until if f.always and f.dropped_until else f.dropped_until


def _needed(fronts: Frontiers) -> npt.NDArray[np.bool_]:
    """Per op and position j, whether the op must run again in a segment that it is in and that ends at j."""
    n = fronts.n
    needed = np.zeros((n, n + 1), dtype=np.bool_)
    for o in range(n - 1, -1, -1):
        if not fronts.relevant[o]:
            continue
        for f in fronts.made[o]:
            if f.free or f.last >= n:
                continue
            j = slice(max(f.last, o) + 1, n + 1)
            if f.dropped_until:
                needed[o, j] = True
            else:
                for r in fronts.readers.get(f.value, ()):
                    needed[o, j] |= needed[r, j]
    return needed
