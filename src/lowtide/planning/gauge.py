"""gauge: the peak and the added time of a choice, quickly.

It says what `simulate` says of the choice's lists, without making a timeline: only the moments at which something is
run again are gone through one by one, the rest is a sum of intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lowtide.planning.lazy import Choice, Lazy
from lowtide.planning.schedule import handed_until

Ints = npt.NDArray[np.int64]


class Reading(NamedTuple):
    """What a choice comes to: the peak as `simulate` counts it, and the seconds of what is run again."""

    peak_bytes: int
    added_s: float


class _Action(NamedTuple):
    """A run: the op, bytes that it leaves behind, values that it takes over, values that go after it."""

    op: int
    left_bytes: int
    consumed: list[int]
    gone: list[int]


class _Hold:
    """A rebuilt value while it is in memory, followed backward in time from its last need."""

    __slots__ = ("action", "moment", "until")

    def __init__(self, action: _Action | None, moment: int, until: int) -> None:
        self.action = action  # the run that reads it last; None if backward asks for it after that
        self.moment = moment
        self.until = until  # the graph holds it up to here


class Gauge:
    """Reads choices about one step."""

    def __init__(self, lazy: Lazy) -> None:
        self.lazy = lazy
        step = self.step = lazy.step
        facts = lazy.fronts.facts
        self.n_moments = step.n_moments
        self.base = np.array(step.base_bytes, dtype=np.int64)
        self.seconds = step.seconds or (0.0,) * len(step.ops)
        self.size = {v: f.nbytes for v, f in facts.items()}
        # When a kept value begins to cost bytes, and until when handles hold it.
        self.start = {v: max(f.death, step.ops[f.born].moment) for v, f in facts.items()}
        self.release = {v: max((step.saves[i].release for i in step.saves_of.get(v, ())), default=0) for v in facts}
        self.asked: list[tuple[int, int, int]] = []  # moment, value, until when it is then in the graph's hands
        self.hands: dict[int, list[tuple[int, int]]] = {}
        for m, v in lazy.asked:
            save = ~step.moments[m]
            until = handed_until(step, save, step.saves[save].uses.index(m))
            self.asked.append((m, v, until))
            self.hands.setdefault(v, []).append((m, until))
        self.asked.reverse()
        forward = step.ops[: step.n_forward]
        held = [0 if s.external else s.nbytes for s in step.storages]
        self.run_bytes = [
            step.replay_scratch_bytes(o) + sum(held[step.values[w].storage] for w in op.writes)
            for o, op in enumerate(forward)
        ]
        self.taken = [frozenset(old for old, _ in op.inplace) for op in forward]

    def read(self, choice: Choice) -> Reading:
        """Peak and added time."""
        level, added_s = self.levels(choice)
        return Reading(int(level.max(initial=0)), added_s)

    def added_s(self, choice: Choice) -> float:
        """Added time alone, which is quicker still."""
        seconds = self.seconds
        return sum(seconds[o] for ops in self.lazy.lists(choice)[1].values() for o in ops)

    def levels(self, choice: Choice) -> tuple[Ints, float]:
        """Bytes per moment as in a timeline, and added seconds."""
        keep, runs = self.lazy.lists(choice)
        change = np.zeros(self.n_moments + 1, dtype=np.int64)
        events, last_read = self._scan(keep, runs, change)
        size, start, release = self.size, self.start, self.release
        for v in keep:
            begin, end = start[v], max(release[v], last_read.get(v, -1) + 1)
            if end > begin:
                change[begin] += size[v]
                change[min(end, self.n_moments)] -= size[v]
        level = self.base + np.cumsum(change[:-1])
        added_s = 0.0
        for m, actions in events:
            top = now = int(level[m])
            for o, left_bytes, consumed, gone in actions:
                added_s += self.seconds[o]
                for v in consumed:
                    now -= size[v]
                top = max(top, now + self.run_bytes[o])
                now += left_bytes
                for v in gone:
                    if v not in keep or (release[v] <= m and start[v] <= m):
                        now -= size[v]
            level[m] = max(top, now)
        return level, added_s

    def _scan(
        self, keep: frozenset[int], runs: Mapping[int, tuple[int, ...]], change: Ints
    ) -> tuple[list[tuple[int, list[_Action]]], dict[int, int]]:
        """Go backward in time over what is asked for and run: the runs with what goes when, and the last moment at
        which each kept value is read. Adds to `change` what rebuilt values take from the moment after their run."""
        holds: dict[int, _Hold] = {}
        last_read: dict[int, int] = {}
        events: list[tuple[int, list[_Action]]] = []
        if not runs:
            return events, last_read
        n, size, lazy = self.n_moments, self.size, self.lazy
        for m, v, until in self.asked:
            if v not in keep:
                hold = holds.get(v)
                if hold is None:
                    holds[v] = _Hold(None, m, until)
                elif until > hold.until:
                    hold.until = until
            ops = runs.get(m)
            if ops is None:
                continue
            actions: list[_Action] = []
            for o in reversed(ops):
                left_bytes = 0
                for w in lazy.writes[o]:
                    hold = holds.pop(w, None)
                    if hold is None:
                        continue
                    left_bytes += size[w]
                    end = hold.until
                    if hold.action is not None and hold.moment >= end:
                        if hold.action is not _TAKEN:
                            hold.action.gone.append(w)
                        end = hold.moment + 1
                    if end > m + 1:
                        change[m + 1] += size[w]
                        change[min(end, n)] -= size[w]
                action = _Action(o, left_bytes, [], [])
                actions.append(action)
                for r in lazy.reads[o]:
                    if r in keep:
                        if r not in last_read:
                            last_read[r] = m
                            action.gone.append(r)
                    elif r not in holds:
                        if r in self.taken[o] and not any(a < m < b for a, b in self.hands.get(r, ())):
                            action.consumed.append(r)
                            holds[r] = _Hold(_TAKEN, m, 0)
                        else:
                            holds[r] = _Hold(action, m, 0)
            actions.reverse()
            events.append((m, actions))
        return events, last_read


# Stands for an in-place op that takes the storage over: the value does not go after the run, but with it.
_TAKEN = _Action(-1, 0, [], [])
