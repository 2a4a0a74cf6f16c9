"""holding: a tighter lower bound on the peak of every plan, from what must be held because it cannot be made again.

Suppose some plan stays below T bytes. Take an op moment m0 of backward and the unpacks that follow it up to some u. An
op whose run would reach T at each of these unpacks (its reads and writes on top of what memory certainly holds then)
does not run between m0 and u. So what these unpacks ask for must follow, by other ops alone, from what is held at m0:
the held values separate the outputs of such ops from what is asked for. The cheapest separation is a minimum vertex
cut. If it brings the level of m0 to T, no plan stays below T.

An op of several operands may be ruled out unless one of them is held: from the last run that makes an operand up to
that of the op it stays, and the other operands must follow from what is held beside it, by the same argument.

The op-level bound (`bound`) is the case in which nothing at all is held at m0. The argument is our own; tests compare
it with proven optima of small steps.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lowtide.planning.bound import Bound, bound, certain_levels, certain_spans, intact_until
from lowtide.planning.frontiers import Frontiers
from lowtide.planning.mincut import FAR, Network
from lowtide.planning.step import Step

_WINDOW = 40  # unpacks of dropped values that are looked at after a moment
_STEPS = 500_000  # values that are walked over at most, some seconds; what is found by then is valid
_CLOSE = 0.999  # of what is enough: the search ends


def holding_bound(step: Step, enough: int | None = None) -> Bound:
    """A lower bound on the peak of every plan of `step`, at least that of `bound`.

    The work is limited: some seconds for thousands of ops. What was found is remembered for the step, and a later call
    goes on from there.

    Args:
        enough: bytes from which on a higher bound is of no use, such as a plan's peak. The search ends close to it.
    """
    key = id(step)
    known = _known.get(key)
    if known is None:
        known = _known[key] = _Known(bound(step))
        weakref.finalize(step, _known.pop, key, None)
    most = FAR if enough is None else int(_CLOSE * enough)
    if known.best.op >= 0 and known.best.bytes < most and known.steps_left >= 0 and not known.is_over:
        _Search(step, known, most).run()
    return known.best


@dataclass
class _Known:
    """How far the search has come on a step.

    Attributes:
        best: the bound so far.
        next: how many moments are done with, those with the highest level first.
        steps_left: how much work is still allowed.
        is_over: all moments are done with.
    """

    best: Bound
    next: int = 0
    steps_left: int = _STEPS
    is_over: bool = False


_known: dict[int, _Known] = {}


class _Search:
    """The search for the moment that proves most."""

    def __init__(self, step: Step, known: _Known, enough: int) -> None:
        self.step, self.fronts, self.known, self.enough = step, Frontiers(step), known, enough
        codes = step.code_values  # as in `bound`, they count for nothing
        sizes = [0 if s.external else s.nbytes for s in step.storages]
        self.size = [0 if i in codes else sizes[v.storage] for i, v in enumerate(step.values)]
        # What memory certainly holds: per moment, and at unpacks before the answer. Where a value is there at no cost:
        # naturally up to a moment, and in spans.
        self.floor, self.before = certain_levels(step, sizes), certain_levels(step, sizes, late=1)
        self.natural = {v: intact_until(step, v) for v in self.fronts.facts}
        self.handed = {v: certain_spans(step, v) for v in step.saves_of if not step.is_external(v)}
        self.run_levels: dict[tuple[int, int], int] = {}
        self.most = [self._most(o) for o in range(self.fronts.n)]
        self.unpacks = [m for m in range(self.fronts.begin, step.n_moments) if step.moments[m] < 0]
        self.asking = [m for m in self.unpacks if not step.is_external(step.saves[~step.moments[m]].value)]

    def run(self) -> None:
        step, known = self.step, self.known
        moments = [m for m in range(self.fronts.begin, step.n_moments) if step.moments[m] >= 0]
        moments.sort(key=lambda m: -self.floor[m])
        while known.next < len(moments) and not self._is_done():
            self._raise(moments[known.next])
            known.next += not self._is_done()
        known.is_over = known.next >= len(moments)

    def _is_done(self) -> bool:
        return self.known.steps_left < 0 or self.known.best.bytes >= self.enough

    def _raise(self, m0: int) -> None:
        """Raise the bound by what moment `m0` proves."""
        first = bisect_right(self.asking, m0)
        sinks: dict[int, int] = {}  # what is asked for -> bytes of holding it
        for end in self.asking[first : first + _WINDOW]:
            v = self.step.saves[~self.step.moments[end]].value
            weight = self.weight(v, m0)
            if not weight or v in sinks:
                continue
            sinks[v] = weight
            # Holding all that is asked for is one of the cuts.
            while self.floor[m0] + sum(sinks.values()) > self.known.best.bytes and not self._is_done():
                window = self.unpacks[bisect_right(self.unpacks, m0) : bisect_right(self.unpacks, end)]
                cut, reach = self._cut(m0, window, sinks, self.known.best.bytes + 1)
                proven = min(self.floor[m0] + cut, reach)
                if proven <= self.known.best.bytes:
                    break
                self.known.best = Bound(proven, m0, self.step.moments[m0])

    def weight(self, v: int, m: int) -> int:
        """Bytes that holding value `v` at moment `m` takes beyond what is certainly there."""
        if self.natural.get(v, 0) > m or any(start <= m < end for start, end in self.handed.get(v, ())):
            return 0
        return self.size[v]

    def _weight_of_run(self, v: int, u: int) -> int:
        """The same in a run at unpack `u`, before its answer."""
        if self.natural.get(v, 0) > u or any(start < u < end for start, end in self.handed.get(v, ())):
            return 0
        return self.size[v]

    def _weight_of_runs(self, v: int, window: list[int]) -> int:
        """The least of that over all unpacks of a window."""
        if self.natural.get(v, 0) > window[0]:
            return 0
        for start, end in self.handed.get(v, ()):
            k = bisect_right(window, start)
            if k < len(window) and window[k] < end:
                return 0
        return self.size[v]

    def _most(self, o: int) -> int:
        """What a run of op `o` takes at most on top of `before`."""
        op = self.step.ops[o]
        reads = {r for r in op.reads if not self.step.is_external(r)} - {old for old, _ in op.inplace}
        return self.step.replay_scratch_bytes(o) + sum(self.size[v] for v in (*reads, *op.writes))

    def _run_level(self, o: int, u: int) -> int:
        """A level that memory reaches if op `o` runs at unpack `u`. What it takes over in place is counted once."""
        known = self.run_levels.get((o, u))
        if known is None:
            op = self.step.ops[o]
            there = {r for r in op.reads if self.size[r] and not self._weight_of_run(r, u)}
            there -= {old for old, _ in op.inplace}
            known = self.before[u] + self.most[o] - sum(self.size[r] for r in there if not self.step.is_external(r))
            self.run_levels[o, u] = known
        return known

    def _cut(self, m0: int, window: list[int], sinks: dict[int, int], goal: int) -> tuple[int, int]:
        """The cheapest separation at `m0` if no run in `window` may reach `goal`, and how high the goal could be with
        the same cut."""
        separation = _Separation(lambda v: self.weight(v, m0))
        reach = self._trace(separation, window, sinks, goal)
        return separation.cost(sinks), reach

    def _trace(
        self, separation: _Separation, window: list[int], sinks: Iterable[int], goal: int, held: int = -1
    ) -> int:
        """Walk from `sinks` towards what they are made from, up to what cannot be made. Returns the least level that
        one of the runs ruled out would reach. `held`: an operand that is held all the time, and not counted."""
        step, reach = self.step, FAR
        todo = [v for v in sinks if separation.add(v)]
        forced: dict[int, set[int]] = {}  # value -> what can only be made if it is held
        while todo:
            self.known.steps_left -= 1
            v = todo.pop()
            o = step.values[v].op
            level = self._impossible(o, window, goal, held)
            if level:
                separation.block(v)
                reach = min(reach, level)
                continue
            reads = [r for r in dict.fromkeys(step.ops[o].reads) if not step.is_external(r) and separation.weight(r)]
            if held < 0 and len(reads) > 1:
                last, level = self._joined(o, reads, window, goal)
                if last >= 0:
                    forced.setdefault(last, set()).add(v)
                    reach = min(reach, level)
            for r in reads:
                if separation.add(r):
                    todo.append(r)
                separation.arc(r, v)
        # What is asked for itself is not forced: it need not be held for that.
        separation.force({b: makes for b, makes in forced.items() if b not in sinks})
        return reach

    def _joined(self, o: int, reads: list[int], window: list[int], goal: int) -> tuple[int, int]:
        """An operand without which, held at the start of the window, op `o` cannot run in it, and the level that making
        it would reach; -1 if there is none.

        From the last run that makes operand b up to the run of `o`, b is held. So what the other operands follow from
        without runs that would reach the goal together with b is held in that last run, on top of what it reads and
        writes itself."""
        step = self.step
        for b in sorted(reads, key=lambda r: -step.values[r].op)[:2]:
            maker = step.values[b].op
            if maker < 0 or self._impossible(maker, window, goal):
                continue
            its_own = {*step.ops[maker].reads, *step.ops[maker].writes}
            separation = _Separation(lambda v, its_own=its_own: 0 if v in its_own else self._weight_of_runs(v, window))
            others = [r for r in reads if r != b and separation.weight(r)]
            if not others:
                continue
            room = goal - self._weight_of_runs(b, window)
            level = self._trace(separation, window, others, room, b)
            if level < FAR:
                level += goal - room
            level = min(level, min(self._run_level(maker, u) for u in window) + separation.cost(others))
            if level >= goal:
                return b, level
        return -1, FAR

    def _impossible(self, o: int, window: list[int], goal: int, there: int = -1) -> int:
        """0 if op `o` may run in the window, else the least level that a run would reach, at least `goal`. `there`: a
        value that is not counted."""
        if o < 0 or o >= self.fronts.n or self.fronts.stuck[o]:
            return FAR
        least, free = FAR, self.size[there] if there >= 0 and there in self.step.ops[o].reads else 0
        goal += free
        for u in window:
            if self.before[u] + self.most[o] < goal:
                return 0
            least = min(least, self._run_level(o, u))
            if least < goal:
                return 0
        return least - free


class _Separation:
    """What is held, as a vertex cut between values that cannot be made and values that are wanted.

    Args:
        weight: bytes of holding a value.
    """

    def __init__(self, weight: Callable[[int], int]) -> None:
        self.weight = weight
        self.node: dict[int, int] = {}
        self.arcs: list[tuple[int, int]] = []
        self.blocked: set[int] = set()

    def add(self, v: int) -> bool:
        """Whether `v` is new."""
        if v in self.node:
            return False
        self.node[v] = len(self.node)
        return True

    def arc(self, read: int, made: int) -> None:
        self.arcs.append((read, made))

    def block(self, v: int) -> None:
        self.blocked.add(v)

    def force(self, forced: Mapping[int, set[int]]) -> None:
        """Values that must be held for others to be made. What else is made from them is left out: it makes the cut
        cheaper at most."""
        if forced:
            self.arcs = [(r, v) for r, v in self.arcs if r not in forced or v in forced[r]]
            self.blocked.update(forced)

    def cost(self, wanted: Iterable[int]) -> int:
        """Bytes of the cheapest cut."""
        if not self.blocked:
            return 0
        n = len(self.node)
        net, source, sink = Network(2 * n + 2), 2 * n, 2 * n + 1
        for v, i in self.node.items():
            net.edge(2 * i, 2 * i + 1, self.weight(v))
        for r, v in self.arcs:
            net.edge(2 * self.node[r] + 1, 2 * self.node[v], FAR)
        for v in self.blocked:
            net.edge(source, 2 * self.node[v], FAR)
        for v in wanted:
            net.edge(2 * self.node[v] + 1, sink, FAR)
        net.cut(source, sink)
        return net.flow
