"""Every block of memory of a step under a plan, and the order in which they are allocated and freed.

The simulator counts bytes; here each byte belongs to a block with a name. Both follow the same schedule, so that the
highest level of the blocks is the simulated peak, to the byte.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from lowtide.planning.schedule import Action, Event, handed_until, schedule
from lowtide.planning.simulate import keep_all
from lowtide.planning.step import Category, Step


class Kind(str, Enum):
    """Why a block is there. The values are what people read."""

    PARAMETER = "parameters"
    GRADIENT = "gradients"
    OPTIMIZER = "optimizer state"
    INPUT = "inputs"
    KEPT = "kept activations"
    RECOMPUTED = "recomputed"
    TRANSIENT = "in use only"


_KIND = {
    Category.PARAMETER: Kind.PARAMETER,
    Category.BUFFER: Kind.PARAMETER,
    Category.GRADIENT: Kind.GRADIENT,
    Category.OPTIMIZER: Kind.OPTIMIZER,
    Category.INPUT: Kind.INPUT,
}


def kind_of(category: Category, kept: bool) -> Kind:
    """What a storage of the step counts as. Activations that are dropped are there only while they are in use."""
    return _KIND.get(category, Kind.KEPT if kept else Kind.TRANSIENT)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of `nbytes` > 0. `op` wrote it first (-1: it stood there before the step); `storage` is the step's
    storage whose content it has, or -1 for a kernel's workspace."""

    nbytes: int
    kind: Kind
    op: int
    storage: int


class Turn(NamedTuple):
    """Block `block` is allocated or freed at `moment`."""

    moment: int
    block: int
    is_alloc: bool


@dataclass(frozen=True)
class History:
    """`standing` are ids of blocks that were there before the first turn. What no turn frees outlives the step.
    `settled` has, per moment, the number of turns after which all has come and gone that does so as it begins; what
    follows at that moment happens in the course of it."""

    step: Step
    blocks: tuple[Block, ...]
    standing: tuple[int, ...]
    turns: tuple[Turn, ...]
    settled: tuple[int, ...]

    def peak(self) -> tuple[int, int]:
        """The highest level above the standing blocks in bytes, and the number of turns after which it is first
        reached."""
        level = top = at = 0
        for k, turn in enumerate(self.turns):
            size = self.blocks[turn.block].nbytes
            level += size if turn.is_alloc else -size
            if level > top:
                top, at = level, k + 1
        return top, at

    def highest(self, moment: int) -> int:
        """The number of turns after which a moment's level is first at its highest."""
        k = at = self.settled[moment]
        level = top = 0
        while k < len(self.turns) and self.turns[k].moment == moment:
            size = self.blocks[self.turns[k].block].nbytes
            level += size if self.turns[k].is_alloc else -size
            k += 1
            if level > top:
                top, at = level, k
        return at

    def alive(self, turns: int) -> list[int]:
        """Ids of the blocks that are there after that many turns, standing ones included."""
        there = dict.fromkeys(self.standing)
        for turn in self.turns[:turns]:
            if turn.is_alloc:
                there[turn.block] = None
            else:
                del there[turn.block]
        return list(there)


def history(
    step: Step, keep: frozenset[int] | None = None, runs: Mapping[int, tuple[int, ...]] | None = None
) -> History:
    """The blocks of `step` under the lists of a plan; without them, as PyTorch does it.

    Raises:
        PlanError: if the plan wants a value that nothing makes.
    """
    return _Writer(step, keep_all(step) if keep is None else keep, runs or {}).write()


@dataclass
class _Writer:
    step: Step
    keep: frozenset[int]
    runs: Mapping[int, tuple[int, ...]]
    blocks: list[Block] = field(default_factory=list[Block])
    turns: list[Turn] = field(default_factory=list[Turn])
    frees: dict[int, list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )  # moment -> blocks freed as it begins
    allocs: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    freed_by_run: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    held: dict[int, int] = field(default_factory=dict[int, int])  # recomputed value -> its block, -1 if it has no bytes
    until: dict[int, int] = field(default_factory=dict[int, int])  # recomputed value -> moment its handle lets go

    def write(self) -> History:
        step = self.step
        self.order = schedule(step, self.keep, self.runs)
        standing = self._storages()
        events = {e.moment: e for e in self.order.events}
        settled: list[int] = []
        for m in range(step.n_moments):
            for b in self.frees.pop(m, ()):
                self.turns.append(Turn(m, b, False))
            for b in self.allocs.pop(m, ()):
                self.turns.append(Turn(m, b, True))
            settled.append(len(self.turns))
            what = step.moments[m]
            if what >= 0 and step.workspace_bytes and step.workspace_bytes[what]:
                self._briefly(m, step.workspace_bytes[what], what, Kind.TRANSIENT)
            if m in events:
                self._event(events[m])
        return History(step, tuple(self.blocks), standing, tuple(self.turns), tuple(settled))

    def _add(self, nbytes: int, kind: Kind, op: int, storage: int) -> int:
        self.blocks.append(Block(nbytes, kind, op, storage))
        return len(self.blocks) - 1

    def _briefly(self, m: int, nbytes: int, op: int, kind: Kind) -> None:
        b = self._add(nbytes, kind, op, -1)
        self.turns += [Turn(m, b, True), Turn(m, b, False)]

    def _storages(self) -> tuple[int, ...]:
        """Blocks of the step's own storages, for as long as they live or are kept; ids of those that stand."""
        step, n = self.step, self.step.n_moments
        release, first = self._kept()
        last_read = self._last_reads()
        writer: dict[int, int] = {}
        for value in step.values:
            writer.setdefault(value.storage, value.op)
        standing: list[int] = []
        for s, storage in enumerate(step.storages):
            if not storage.nbytes:
                continue
            b = self._add(storage.nbytes, kind_of(storage.category, s in release), writer.get(s, -1), s)
            start, end = storage.birth, storage.death
            if start < 0:
                standing.append(b)
                start = end  # what is kept of it beyond its life is a block of its own
                if s in release:
                    b = self._add(storage.nbytes, Kind.KEPT, writer.get(s, -1), s)
            if s in release:
                kept_from = max(storage.death, first[s])
                read, run = last_read.get(s, (-1, 0))
                kept_to = min(max(release[s], read + 1), n)
                if kept_to > kept_from:
                    start, end = min(start, kept_from), kept_to
                    if release[s] <= read:  # goes in the middle of the moment in which it is read last
                        self.freed_by_run[read, run].append(b)
                        self.allocs[start].append(b)
                        continue
            if start < min(end, n):
                self.allocs[start].append(b)
                self.frees[end].append(b)
        return tuple(standing)

    def _kept(self) -> tuple[dict[int, int], dict[int, int]]:
        """Storage -> moment at which its handles let go, and the first moment at which one of its kept versions is
        there."""
        step = self.step
        release: dict[int, int] = {}
        first: dict[int, int] = {}
        for v in self.keep:
            value = step.values[v]
            if step.storages[value.storage].external:
                continue
            end = max((step.saves[i].release for i in step.saves_of.get(v, ())), default=0)
            made = step.ops[value.op].moment if value.op >= 0 else 0
            release[value.storage] = max(release.get(value.storage, 0), end)
            first[value.storage] = min(first.get(value.storage, made), made)
        return release, first

    def _last_reads(self) -> dict[int, tuple[int, int]]:
        """Storage -> moment and number of the last run that reads a kept version of it."""
        last: dict[int, tuple[int, int]] = {}
        for event in self.order.events:
            for k, action in enumerate(event.actions):
                for v in action.free:
                    if v in self.keep:
                        s = self.step.values[v].storage
                        last[s] = max(last.get(s, (-1, 0)), (event.moment, k))
        return last

    def _event(self, event: Event) -> None:
        """The runs of an unpack, and its answer."""
        step, m = self.step, event.moment
        for k, a in enumerate(event.actions):
            self._run(m, a)
            for v in a.free:
                if v not in self.keep:
                    self._let_go(v, m)
            for b in self.freed_by_run.pop((m, k), ()):
                self.turns.append(Turn(m, b, False))
        v = step.saves[event.save].value
        if v in self.held:
            until = handed_until(step, event.save, step.saves[event.save].uses.index(m))
            self.until[v] = max(until, self.until[v])
            if event.ends_hold:
                self._let_go(v, m)

    def _run(self, m: int, a: Action) -> None:
        """One op again: its scratch, its outputs, and what is left of them."""
        step = self.step
        scratch = step.replay_scratch_bytes(a.op)
        scratch_block = self._add(scratch, Kind.RECOMPUTED, a.op, -1) if scratch else -1
        if scratch:
            self.turns.append(Turn(m, scratch_block, True))
        taken = {new: old for old, new in step.ops[a.op].inplace if old in a.consume}
        made: dict[int, int] = {}
        for w in step.ops[a.op].writes:
            if w in step.code_values and w not in a.retain:  # codes are made only if they are wanted
                continue
            if w in taken:
                made[w] = self.held.pop(taken[w])
                del self.until[taken[w]]
                continue
            storage = step.values[w].storage
            size = 0 if step.storages[storage].external else step.storages[storage].nbytes
            made[w] = self._add(size, Kind.RECOMPUTED, a.op, storage) if size else -1
            if size:
                self.turns.append(Turn(m, made[w], True))
        if scratch:
            self.turns.append(Turn(m, scratch_block, False))
        for w, b in made.items():
            if w in a.retain:
                self.held[w], self.until[w] = b, 0
            elif b >= 0:
                self.turns.append(Turn(m, b, False))

    def _let_go(self, value: int, m: int) -> None:
        """The tape lets go of a recomputed value; a handle that it was given to may hold it longer."""
        b, until = self.held.pop(value), self.until.pop(value)
        if b < 0:
            return
        if until > m:
            self.frees[until].append(b)
        else:
            self.turns.append(Turn(m, b, False))
