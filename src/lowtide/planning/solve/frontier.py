"""frontier: least peak with at most one recomputation of any op, on op-level frontiers.

The revised objective of the thesis (N. Wang, NTU 2023, section 4; FIELD section 1) on a traced step. A plan of this
class is a set of cuts 0 = c_0 < c_1 < ... < c_k < n. The frontiers of the cuts are kept, the last segment keeps what
it saves, and each other segment is run again once. With V(i) the least peak of what is forward of cut i in forward
and before it in backward, in bytes above those kept by cuts so far,

    V(i) = min( M(i, n), min_{i<j<n} max( M(i, j), c(i, j) + V(j) ) ),

where M(i, j) is the peak of segment [i, j) itself (its forward, its recomputation, its backward, natural bytes
included) and c(i, j) the bytes that the cut at j keeps of what the segment made.

For each i three kinds of vectors over moments and over j, all O(n) and updated from i + 1, give c(i, j), M(i, n) and a
lower bound of M(i, j) that lacks little but the temporaries of the recomputation. M(i, j) itself is worked out only
for those j that the bound cannot rule out, in time linear in the segment. O(n^2) numpy operations on integers, and in
practice a few exact segments per i.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from lowtide.planning.frontiers import Fact, Frontiers
from lowtide.planning.simulate import keep_all, simulate
from lowtide.planning.step import Step

Lists = tuple[frozenset[int], Mapping[int, tuple[int, ...]]]
Vector = npt.NDArray[np.int64]
Progress = Callable[[float], None]

_FAR = np.int64(1) << 60


def frontier(step: Step, progress: Progress | None = None) -> Lists:
    """The cuts of least peak, as a plan's lists (keep, runs); never above the peak without a plan.

    Args:
        progress: called with a fraction in [0, 1] now and then.
    """
    report = progress or (lambda _: None)
    fronts = Frontiers(step)
    baseline = (keep_all(step), dict[int, tuple[int, ...]]())
    least = simulate(step).peak_bytes
    if fronts.n == 0 or not fronts.facts:
        return baseline
    cuts, _ = least_peak_cuts(fronts, lambda x: report(0.9 * x))
    lists = polished(fronts, cuts, lambda x: report(0.9 + 0.1 * x))
    report(1.0)
    return lists if simulate(step, lists).peak_bytes < least else baseline


def least_peak_cuts(fronts: Frontiers, progress: Progress | None = None) -> tuple[tuple[int, ...], int]:
    """The dynamic program: the cuts, and the peak in bytes that it promises for them."""
    state = _State(fronts)
    n = fronts.n
    value = np.full(n + 1, _FAR, dtype=np.int64)
    following = [n] * (n + 1)
    for i in range(n - 1, -1, -1):
        state.enter(i)
        if i and not fronts.allowed[i]:
            continue
        rows = state.rows(i)
        best, at = rows.last_segment, n
        if i + 1 < n:
            ahead = np.arange(i + 1, n)
            least = np.maximum(rows.lower_bound(ahead), state.cut_bytes[i + 1 : n] + value[i + 1 : n])
            while True:
                k = int(np.argmin(least))
                if least[k] >= best:
                    break
                j = i + 1 + k
                peak = max(rows.segment(j), int(state.cut_bytes[j] + value[j]))
                if peak < best:
                    best, at = peak, j
                least[k] = _FAR
        value[i], following[i] = best, at
        if progress is not None and i % 64 == 0:
            progress(1 - i / n)
    cuts: list[int] = []
    at = following[0]
    while at < n:
        cuts.append(at)
        at = following[at]
    return tuple(cuts), int(value[0])


class _State:
    """Vectors that grow as the front of the segments, i, goes down. Moments index those over time, positions those
    over j; those ending in `_d` are differences of what they say.

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

    def __init__(self, fronts: Frontiers) -> None:
        step = fronts.step
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
        # What enters L(i) and what nothing before i wants any more, as i comes down to its key.
        self.by_last: dict[int, list[Fact]] = {}
        self.by_first: dict[int, list[Fact]] = {}
        self.front: dict[int, Fact] = {}  # L(i)
        self.spare: dict[int, Fact] = {}  # those of L(i) that nothing before i wants
        for f in fronts.facts.values():
            if not f.free:
                self.by_last.setdefault(min(f.last, n), []).append(f)
                self.by_first.setdefault(min(max(f.first, f.born), f.last, n), []).append(f)
        self._cross(n)

    def _cross(self, i: int) -> None:
        """L(i) from L(i + 1), but for what op i makes."""
        for f in self.by_last.get(i, ()):
            if f.born < i:
                self.front[f.value] = f
                self._natural(f, 1)
        for f in self.by_first.get(i, ()):
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
            self.gone_d[start] += sign * f.nbytes
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
                self.held[max(f.death, self.begin) : f.kept_until if f.always else f.dropped_until] += f.nbytes
                if f.kept_until > f.death:
                    self.saved_d[f.death] += f.nbytes
                    self.saved_d[f.kept_until] -= f.nbytes
                if not f.always:
                    np.minimum(self.asks[f.last + 1 :], f.asked, out=self.asks[f.last + 1 :])
            if f.always and f.death < self.begin:
                self.always_d[f.death] += f.nbytes
                self.always_d[self.begin] -= f.nbytes
        self._cross(i)

    def rows(self, i: int) -> _Rows:
        return _Rows(self, i)


class _Rows:
    """Everything about segments [i, j) for one i."""

    def __init__(self, state: _State, i: int) -> None:
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
        self.backward = np.full(len(state.base) - begin + 2, -_FAR, dtype=np.int64)
        self.backward[: end - begin] = np.maximum.accumulate(busy[::-1])[::-1]
        self.busy = busy

    def lower_bound(self, j: Vector) -> Vector:
        """At most M(i, j), for each j."""
        s = self.state
        forward = self.forward[s.moment[j] - 1 - self.start]
        return np.maximum(forward, self.backward[s.asks[j] - self.begin])

    def segment(self, j: int) -> int:
        """M(i, j)."""
        s, i, begin, end = self.state, self.i, self.begin, self.end
        made = [f for o in range(i, j) for f in s.fronts.made[o]]
        kept = {f.value: f for f in made if f.free or f.last >= j}
        held = [f for f in kept.values() if not f.free]
        first, asked = int(s.before[j]), int(s.asks[j])
        peak = self._forward_peak(j, held)
        if asked >= end:  # everything that backward asks for is there
            return max(peak, self._idle_peak(first, end, held, frozenset()))
        ops = s.fronts.segment_runs(i, j, frozenset(kept))
        last_reader = {r: o for o in ops for r in s.step.ops[o].reads}
        peak = max(peak, self._idle_peak(first, asked, held, last_reader.keys()))
        peak = max(peak, self._running_peak(asked, ops, kept, last_reader))
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

    def _idle_peak(self, start: int, end: int, held: list[Fact], read: Collection[int]) -> int:
        """Peak of backward from `start` to `end` while nothing is recomputed yet. `read`: what runs at `end` read."""
        if end <= start:
            return 0
        level = self.idle[start - self.begin : end - self.begin].copy()
        for f in held:
            until = end if f.value in read else f.kept_until if f.dropped_until else 0
            level[max(f.death - start, 0) : max(until - start, 0)] += f.nbytes
        for f in self.state.spare.values():
            if f.value in read:
                since = max(f.death, f.kept_until if f.dropped_until else 0)
                level[max(since - start, 0) :] += f.nbytes
        return int(level.max())

    def _running_peak(
        self, asked: int, ops: list[int], kept: Mapping[int, Fact], last_reader: Mapping[int, int]
    ) -> int:
        """Peak at the moment `asked`, while `ops` run again."""
        s = self.state
        step, size, facts = s.step, s.size, s.fronts.facts
        level = int(self.idle[asked - self.begin])
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
            peak = max(peak, level + op.scratch_bytes + sum(size[w] for w in op.writes) - reused)
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


def polished(fronts: Frontiers, cuts: tuple[int, ...], progress: Progress | None = None) -> Lists:
    """The plan of `cuts` after trying to leave out cuts, move or add one, as the simulator judges it: less peak, or
    as much peak and less work. A fixed number of tries."""
    step = fronts.step

    def judged(candidate: tuple[int, ...]) -> tuple[tuple[int, int, int], Lists]:
        lists = fronts.lift(candidate)
        t = simulate(step, lists)
        return (t.peak_bytes, t.recompute_flops, t.recompute_ops), lists

    cost, best = judged(cuts)
    budget = tries = max(16, 40_000 // max(fronts.n, 1))
    improved = True
    while improved and tries > 0:
        improved = False
        for candidate in _neighbours(fronts, cuts):
            if tries == 0:
                break
            tries -= 1
            if progress is not None and tries % 16 == 0:
                progress(1 - tries / budget)
            new_cost, lists = judged(candidate)
            if new_cost < cost:
                cost, best, cuts, improved = new_cost, lists, candidate, True
                break
    return best


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
