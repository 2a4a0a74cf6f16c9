"""schedule: what a plan's lists mean for memory: what each run leaves behind, and when everything is let go.

The simulator counts by it and the tape carries it out, so that both mean the same thing by a plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from lowtide.errors import PlanError
from lowtide.planning.step import Step


class Action(NamedTuple):
    """One run of a forward op in backward. All fields but `op` hold value ids.

    Attributes:
        op: the op to run again.
        retain: outputs that the tape keeps hold of; the others are let go as soon as the run is over.
        consume: old versions of in-place pairs whose storage the new version takes over. In-place pairs of the op
            that are not listed work on a copy.
        free: what the tape lets go of after the run: recomputed values, or kept ones that it held as sources.
    """

    op: int
    retain: tuple[int, ...]
    consume: tuple[int, ...]
    free: tuple[int, ...]


class Event(NamedTuple):
    """One unpack at which something is to be done: `actions`, then the answer.

    Attributes:
        moment: when.
        save: which save is asked for.
        actions: runs, in order.
        ends_hold: the value was dropped, and the tape lets go of it as it hands it out. The graph holds it from then
            on, up to `handed_until`.
    """

    moment: int
    save: int
    actions: tuple[Action, ...]
    ends_hold: bool


@dataclass(frozen=True)
class Schedule:
    """A plan in executable form.

    Attributes:
        events: in time order, the unpacks that have runs or ask for a dropped value.
        sources: kept values that runs read: the tape itself holds them from forward on, until an action frees them.
    """

    events: tuple[Event, ...]
    sources: frozenset[int]


def handed_until(step: Step, save: int, use: int) -> int:
    """The moment at which the graph lets go of a dropped value that it was handed at `step.saves[save].uses[use]`.

    The last time that is the save's release. Before (a retained graph) the node keeps its handle, but what it was
    handed goes when the node is done.
    """
    s = step.saves[save]
    m = s.uses[use]
    if use + 1 == len(s.uses):
        return max(s.release, m + 1)
    end, here = s.uses[use + 1], step.positions[m]
    m += 1
    while m < end and step.positions[m] == here:
        m += 1
    return m


def schedule(step: Step, keep: Iterable[int], runs: Mapping[int, tuple[int, ...]]) -> Schedule:
    """Work out what every run retains and what is let go when, by one scan backward in time.

    A value that runs produce lives from a run that makes it to its last need before the next run that makes it: the
    reads of runs, and the uses of its saves. Kept values are never replaced by runs. Linear in the length of the
    lists.

    Args:
        keep: ids of values held from forward on.
        runs: unpack moment -> forward op ids, in order.

    Raises:
        PlanError: if a value is needed that nothing before makes (`check` finds this and says more).
    """
    kept = frozenset(keep)
    needed: set[int] = set()  # dropped values that something later in time wants
    sources: set[int] = set()
    events: list[Event] = []
    for m in range(step.n_moments - 1, -1, -1):
        if step.moments[m] >= 0:
            continue
        save = ~step.moments[m]
        value = step.saves[save].value
        ops = runs.get(m, ())
        dropped = value not in kept and not step.is_external(value)
        if not dropped and not ops:
            continue
        ends_hold = False
        if dropped:
            ends_hold = value not in needed
            needed.add(value)
        actions = [_action(step, o, m, kept, needed, sources) for o in reversed(ops)]
        events.append(Event(m, save, tuple(reversed(actions)), ends_hold))
    if needed:
        v = min(needed)
        raise PlanError(
            f"value {v} ({_made_by(step, v)}) is wanted in backward, but it is neither kept nor recomputed before"
        )
    return Schedule(tuple(reversed(events)), frozenset(sources))


def _action(step: Step, o: int, m: int, kept: frozenset[int], needed: set[int], sources: set[int]) -> Action:
    """The run of op `o` at moment `m`; updates what is needed before it."""
    op = step.ops[o]
    retain = tuple(w for w in op.writes if w in needed)
    needed.difference_update(retain)
    consume: list[int] = []
    free: list[int] = []
    taken = {old for old, _ in op.inplace} if op.inplace else ()
    for r in op.reads:
        if step.is_external(r):
            continue
        if r in kept:
            if r not in sources:
                sources.add(r)
                free.append(r)
        elif r not in needed:
            needed.add(r)
            if r in taken and not _handed_out(step, r, m):
                consume.append(r)
            else:
                free.append(r)
    return Action(o, retain, tuple(consume), tuple(free))


def _handed_out(step: Step, value: int, m: int) -> bool:
    """Whether the graph may hold the value at moment `m`, because it was handed out before."""
    return any(
        u < m < handed_until(step, s, k) for s in step.saves_of.get(value, ()) for k, u in enumerate(step.saves[s].uses)
    )


def _made_by(step: Step, value: int) -> str:
    o = step.values[value].op
    return step.ops[o].name if o >= 0 else "there before the step"
