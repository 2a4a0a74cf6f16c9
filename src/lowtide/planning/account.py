"""account: who is in memory when, at every single run and moment of a plan, worked out with vectors.

It says what `simulate` says and more, for searches: a plan is a `Row` of runs; its `Account` has the level at every
*place* (a run, or a moment after its runs) and the *stays* of values, from the place that makes them to the last that
needs them. 2,000 runs take about a millisecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lowtide.planning.frontiers import Frontiers
from lowtide.planning.schedule import handed_until

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Row:
    """A plan as a row of runs.

    Attributes:
        keep: per value of the step whether it is kept from forward on.
        ops: the forward ops that run again, in the order of time.
        moments: per run the unpack moment before which it runs; never falling.
    """

    keep: Flags
    ops: Ints
    moments: Ints

    @staticmethod
    def of(n_values: int, lists: tuple[frozenset[int], Mapping[int, tuple[int, ...]]]) -> Row:
        """From a plan's lists."""
        keep = np.zeros(n_values, dtype=np.bool_)
        keep[list(lists[0])] = True
        ops = [o for _, row in sorted(lists[1].items()) for o in row]
        moments = [m for m, row in sorted(lists[1].items()) for _ in row]
        return Row(keep, np.array(ops, dtype=np.int64), np.array(moments, dtype=np.int64))

    def lists(self) -> tuple[frozenset[int], dict[int, tuple[int, ...]]]:
        """The plan's lists."""
        runs: dict[int, list[int]] = {}
        for m, o in zip(self.moments.tolist(), self.ops.tolist(), strict=True):
            runs.setdefault(m, []).append(o)
        return frozenset(np.flatnonzero(self.keep).tolist()), {m: tuple(row) for m, row in runs.items()}


@dataclass(frozen=True)
class Account:
    """The memory of one row. A place is a number: moments and runs in the order of time.

    Attributes:
        row: what was counted.
        level: bytes per place, above the start of the step; at a run, with all that it needs for itself.
        run_place: per run its place.
        moment_place: per moment the place of the moment itself, which is after its runs.
        values, starts, ends: per stay of a recomputed value its id, the place that made it, and the first place at
            which it is gone.
        first_entry: per stay its first entry, and the number of entries. An entry is a place that makes or needs a
            recomputed value; a stay's entries stand together, in the order of time.
        places, untils: per entry its place and the first place at which it needs the value no more.
        kept, kept_starts, kept_ends: as values, starts, ends, for kept values that take room of their own.
        kept_reads: value and place of the reads of kept values by runs.
        cost: of all runs: seconds, or FLOPs if the step has no costs.
        has_idle: some runs make nothing that anybody needs, or something is kept that nobody needs.
    """

    row: Row
    level: Ints
    run_place: Ints
    moment_place: Ints
    values: Ints
    starts: Ints
    ends: Ints
    first_entry: Ints
    places: Ints
    untils: Ints
    kept: Ints
    kept_starts: Ints
    kept_ends: Ints
    kept_reads: tuple[Ints, Ints]
    cost: float
    has_idle: bool

    @property
    def peak(self) -> int:
        return int(self.level.max(initial=0))

    @cached_property
    def stays_of(self) -> dict[int, list[int]]:
        """Value -> its stays, in the order of time."""
        out: dict[int, list[int]] = {}
        for s, v in enumerate(self.values.tolist()):
            out.setdefault(v, []).append(s)
        return out

    @cached_property
    def kept_until(self) -> dict[int, int]:
        """Kept value -> the first place at which it is gone."""
        return dict(zip(self.kept.tolist(), self.kept_ends.tolist(), strict=True))


class Accountant:
    """Makes accounts of rows of one step."""

    def __init__(self, fronts: Frontiers) -> None:
        self.fronts = fronts
        step = self.step = fronts.step
        n, self.n_moments, self.n_values = fronts.n, step.n_moments, len(step.values)
        external = [s.external for s in step.storages]
        self.counted = np.array([not external[v.storage] for v in step.values], dtype=np.bool_)
        self.size = np.array(
            [0 if external[v.storage] else step.storages[v.storage].nbytes for v in step.values], dtype=np.int64
        )
        self.storage = np.array([v.storage for v in step.values], dtype=np.int64)
        self.base = np.array(step.base_bytes, dtype=np.int64)
        self.scratch = np.array([step.replay_scratch_bytes(o) for o in range(n)], dtype=np.int64)
        self.cost = np.array(step.seconds[:n] or [op.flops for op in step.ops[:n]], dtype=np.float64)
        self.total_cost = float(step.total_seconds or step.total_flops)
        self.is_cheap = [op.flops == 0 for op in step.ops[:n]]
        self.reads = [tuple(r for r in dict.fromkeys(op.reads) if not step.is_external(r)) for op in step.ops[:n]]
        self.writes: list[tuple[int, ...]] = [tuple(w for w in op.writes if self.counted[w]) for op in step.ops[:n]]
        self.maker = [v.op for v in step.values]
        taken = [{old for old, _ in op.inplace} for op in step.ops[:n]]
        # What an op makes and reads, flat, with makes first: a row's entries are gathered from it.
        self.at = np.cumsum([0, *(len(w) + len(r) for w, r in zip(self.writes, self.reads, strict=True))])
        self.flat = np.array([v for o in range(n) for v in (*self.writes[o], *self.reads[o])], dtype=np.int64)
        self.makes = np.array(
            [k < len(self.writes[o]) for o in range(n) for k in range(self._width(o))], dtype=np.bool_
        )
        self.takes = np.array(
            [k >= len(self.writes[o]) and v in taken[o] for o in range(n)
             for k, v in enumerate((*self.writes[o], *self.reads[o]))],
            dtype=np.bool_,
        )  # fmt: skip
        asked: list[tuple[int, int, int]] = []
        self.hands: dict[int, list[tuple[int, int]]] = {}
        for m, what in enumerate(step.moments):
            if what < 0 and not step.is_external(step.saves[~what].value):
                s = step.saves[~what]
                until = min(handed_until(step, ~what, s.uses.index(m)), step.n_moments)
                asked.append((m, s.value, until))
                self.hands.setdefault(s.value, []).append((m, until))
        self.asked_moment = np.array([a[0] for a in asked], dtype=np.int64)
        self.asked_value = np.array([a[1] for a in asked], dtype=np.int64)
        self.asked_until = np.array([a[2] for a in asked], dtype=np.int64)
        self.asked = asked
        self.is_asked = np.zeros(self.n_values, dtype=np.bool_)
        self.is_asked[self.asked_value] = True
        death = [min(step.storages[v.storage].death, self.n_moments) for v in step.values]
        born = [step.ops[v.op].moment if v.op >= 0 else 0 for v in step.values]
        self.kept_from = np.maximum(np.array(death, dtype=np.int64), np.array(born, dtype=np.int64))
        self.release = np.array(
            [max((step.saves[i].release for i in step.saves_of.get(v, ())), default=0) for v in range(self.n_values)],
            dtype=np.int64,
        )

    def _width(self, o: int) -> int:
        return len(self.writes[o]) + len(self.reads[o])

    def account(self, row: Row) -> Account:
        """Count a row. It must be a plan: every run and unpack finds what it needs."""
        ops, keep = row.ops, row.keep
        n_runs = len(ops)
        n_places = self.n_moments + n_runs
        run_place = np.arange(n_runs) + row.moments
        count = np.bincount(row.moments, minlength=self.n_moments)
        moment_place = np.arange(self.n_moments) + np.cumsum(count)
        first_place = np.append(moment_place - count, n_places)
        # Entries of runs, then of unpacks.
        width = self.at[ops + 1] - self.at[ops]
        which = np.repeat(np.arange(n_runs), width)
        index = np.arange(len(which)) - np.repeat(np.cumsum(width) - width, width) + np.repeat(self.at[ops], width)
        value, makes, takes = self.flat[index], self.makes[index], self.takes[index]
        place = run_place[which]
        is_kept = keep[value]
        extra = np.zeros(n_places + 1, dtype=np.int64)
        level_d = np.zeros(n_places + 1, dtype=np.int64)
        # Runs that write kept values anew throw them away at once.
        k = is_kept & makes
        np.add.at(extra, place[k], self.size[value[k]])
        k = is_kept & ~makes
        reads = value[k], place[k]
        kept, kept_starts, kept_ends = self._kept(keep, first_place, *reads)
        np.add.at(level_d, kept_starts, self.size[kept])
        np.add.at(level_d, kept_ends, -self.size[kept])
        # Recomputed values: stays begin where they are made.
        k = ~is_kept
        u = ~keep[self.asked_value]
        value = np.concatenate((value[k], self.asked_value[u]))
        place = np.concatenate((place[k], moment_place[self.asked_moment[u]]))
        until = np.concatenate((place[: len(value) - int(u.sum())] + 1, first_place[self.asked_until[u]]))
        until = np.maximum(until, place + 1)
        makes = np.concatenate((makes[k], np.zeros(int(u.sum()), dtype=np.bool_)))
        takes = np.concatenate((takes[k], np.zeros(int(u.sum()), dtype=np.bool_)))
        order = np.argsort(value * (n_places + 1) + place, kind="stable")
        value, place, until, makes, takes = value[order], place[order], until[order], makes[order], takes[order]
        first_entry = np.flatnonzero(makes)
        if len(value):
            last = np.append(makes[1:], True)
            for e in np.flatnonzero(takes & last).tolist():
                if not self._handed_out(int(value[e]), int(place[e]), moment_place):
                    until[e] = place[e]
            ends = np.maximum.reduceat(until, first_entry) if len(first_entry) else place[:0]
        else:
            ends = place
        values, starts = value[first_entry], place[first_entry]
        edges = np.append(first_entry, len(value))
        used = np.zeros(n_places, dtype=np.bool_)
        used[starts[edges[1:] > edges[:-1] + 1]] = True
        unread = keep & ~self.is_asked
        unread[reads[0]] = False
        has_idle = not used[run_place].all() or bool(unread.any())
        np.add.at(level_d, starts, self.size[values])
        np.add.at(level_d, ends, -self.size[values])
        base = np.zeros(n_places, dtype=np.int64)
        base[moment_place] = self.base
        base[run_place] = self.base[row.moments] + self.scratch[ops]
        level = base + np.cumsum(level_d[:-1]) + extra[:-1]
        return Account(
            row, level, run_place, moment_place, values, starts, ends, edges, place, until,
            kept, kept_starts, kept_ends, reads, float(self.cost[ops].sum()), has_idle,
        )  # fmt: skip

    def _kept(self, keep: Flags, first_place: Ints, read: Ints, place: Ints) -> tuple[Ints, Ints, Ints]:
        kept = np.flatnonzero(keep & self.counted)
        end = np.zeros(self.n_values, dtype=np.int64)
        end[kept] = first_place[np.minimum(self.release[kept], self.n_moments)]
        np.maximum.at(end, read, place + 1)
        start = first_place[self.kept_from[kept]]
        real = end[kept] > start
        return kept[real], start[real], end[kept][real]

    def _handed_out(self, value: int, place: int, moment_place: Ints) -> bool:
        """Whether the graph may hold the value while it is at `place`, because it was handed out before."""
        if value not in self.hands:
            return False
        m = int(np.searchsorted(moment_place, place))
        return any(a < m < b for a, b in self.hands[value])

    def without_idle(self, row: Row) -> Row:
        """The row without runs that nothing needs, and without keeping what nothing needs. One scan backward."""
        needed, keep = set[int](), row.keep
        kept: set[int] = set(np.flatnonzero(keep).tolist())
        asked = iter(reversed(self.asked))
        ask = next(asked, None)
        idle: list[int] = []
        ops: list[int] = row.ops.tolist()
        moments: list[int] = row.moments.tolist()
        for k in range(len(ops) - 1, -1, -1):
            while ask is not None and ask[0] >= moments[k]:
                needed.add(ask[1])
                ask = next(asked, None)
            wanted = False
            for w in self.writes[ops[k]]:
                if w in needed and w not in kept:
                    wanted = True
                    needed.remove(w)
            if wanted:
                needed.update(self.reads[ops[k]])
            else:
                idle.append(k)
        while ask is not None:
            needed.add(ask[1])
            ask = next(asked, None)
        if not kept <= needed:
            keep = np.zeros_like(keep)
            keep[list(kept & needed)] = True
        if idle:
            return Row(keep, np.delete(row.ops, idle), np.delete(row.moments, idle))
        return Row(keep, row.ops, row.moments)
