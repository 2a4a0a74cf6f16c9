"""What the tape does at each forward op of a plan, decided once per plan so that a live op costs microseconds."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch
from torch._ops import OpOverload

from lowtide.acting.ops import op_info
from lowtide.acting.trace import INNER_BACKWARD
from lowtide.planning.compress import SHAPE, uncompressed
from lowtide.planning.plan import Plan
from lowtide.planning.schedule import Schedule, schedule


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One expected op of the live forward stream.

    Attributes:
        func: the overload, or None if this torch does not have it (then nothing matches).
        name, module: what the step calls it, for messages.
        op: id in the step.
        plain: nothing about it is of interest, only that it came.
        record: it is recomputed at some point, so its arguments are written down.
        inside: it is recomputed only while backward is in the same sharded unit, so that the unit's parameters are
            there.
        reads: value ids that it may read; the lists of the plan hold for those.
        inplace: value ids of new versions, in the order of the op's written arguments.
        outs: value ids of the storages it makes, in the order of its outputs.
        shape: the plan holds nothing but the shape of what it saves of its first argument.
    """

    func: OpOverload | None
    name: str
    module: str
    op: int
    plain: bool
    record: bool
    inside: bool
    reads: frozenset[int]
    inplace: tuple[int, ...]
    outs: tuple[int, ...]
    shape: bool


@dataclass(frozen=True, slots=True)
class Coding:
    """What is held in the place of a value that autograd saves.

    Attributes:
        value: id of the code.
        codec: name of the codec.
        keep: the plan keeps the code from forward on; else it is made again by the op that wrote the value.
    """

    value: int
    codec: str
    keep: bool


@dataclass(frozen=True, eq=False)
class Table:
    """A plan as the tape reads it.

    Attributes:
        entries: the expected stream.
        interesting: values that get a slot.
        sources: values that the tape itself holds from forward on.
        saves: value -> ids of its saves in packing order, for saved values that the plan drops or codes.
        coded: value -> what is held in its place.
        shapes: ids of saves that are answered with a shape.
        schedule: what to run and to let go at each unpack.
        events_of: save id -> indices into schedule.events, one per use.
    """

    entries: tuple[Entry, ...]
    interesting: frozenset[int]
    sources: frozenset[int]
    saves: dict[int, tuple[int, ...]]
    coded: dict[int, Coding]
    shapes: frozenset[int]
    schedule: Schedule
    events_of: dict[int, tuple[int, ...]]


def _overload(name: str) -> OpOverload | None:
    namespace, packet, overload = name.split(".", 2)
    try:
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except AttributeError:
        return None


def _unit(path: str, units: frozenset[str]) -> str:
    """The innermost of `units` that a module path is in."""
    while path not in units and path:
        path = path.rpartition(".")[0]
    return path


def _leaving(plan: Plan, units: frozenset[str]) -> frozenset[int]:
    """Ops that the plan runs again for a sharded unit that is not their own."""
    step, left = plan.step, set[int]()
    for m, ops in plan.runs.items():
        asking = _unit(step.ops[step.saves[~step.moments[m]].op].module, units)
        left.update(o for o in ops if _unit(step.ops[o].module, units) != asking)
    return frozenset(left)


def build_table(plan: Plan, units: frozenset[str] = frozenset()) -> Table:
    """Prepare `plan`. Linear in its step and lists.

    Args:
        units: paths of the modules whose parameters are sharded, gathered for their forward and backward only.
    """
    step = plan.step
    leaving = _leaving(plan, units) if units else frozenset(range(step.n_forward))
    order = schedule(step, plan.keep, plan.runs)
    recorded = {o for ops in plan.runs.values() for o in ops}
    coded = {
        c.of: Coding(c.value, c.codec.partition("/")[0], c.value in plan.keep) for c in step.codes if c.codec != SHAPE
    }
    shapes = frozenset(s for c in step.codes if c.codec == SHAPE for s in c.saves)
    plain = uncompressed(step)
    saves = {
        v: saves
        for v, saves in plain.saves_of.items()  # in packing order
        if v in coded or (v in step.saves_of and v not in plan.keep and not step.is_external(v))
    }
    read = {v for o in recorded for v in step.ops[o].reads if not step.is_external(v)}
    interesting = frozenset(read | {v for o in recorded for v in step.ops[o].writes} | saves.keys())
    with_shape = {step.saves[s].op for s in shapes}
    entries: list[Entry] = []
    overloads: dict[str, OpOverload | None] = {}
    for i, op in enumerate(step.ops[: step.n_forward]):
        if op.pinned == INNER_BACKWARD:
            continue
        if op.name not in overloads:
            overloads[op.name] = _overload(op.name)
        func = overloads[op.name]
        if func is not None and op_info(func).collective:
            continue
        entries.append(
            Entry(
                func=func,
                name=op.name,
                module=op.module,
                op=i,
                plain=i not in recorded and not any(w in interesting for w in op.writes) and i not in with_shape,
                record=i in recorded,
                inside=i not in leaving,
                reads=frozenset(op.reads),
                inplace=tuple(new for _, new in op.inplace),
                outs=tuple(w for w in plain.ops[i].writes if step.values[w].version == 0),
                shape=i in with_shape,
            )
        )
    events_of: dict[int, list[int]] = {}
    for i, event in enumerate(order.events):
        events_of.setdefault(event.save, []).append(i)
    return Table(
        entries=tuple(entries),
        interesting=interesting,
        sources=order.sources,
        saves=saves,
        coded=coded,
        shapes=shapes,
        schedule=order,
        events_of={s: tuple(e) for s, e in events_of.items()},
    )


_tables: dict[tuple[int, frozenset[str]], tuple[weakref.ref[Plan], Table]] = {}


def table_of(plan: Plan, units: frozenset[str] = frozenset()) -> Table:
    """The plan's table, built at its first use and dropped with it."""
    key = id(plan), units
    found = _tables.get(key)
    if found is not None and found[0]() is plan:
        return found[1]
    table = build_table(plan, units)
    _tables[key] = (weakref.ref(plan, lambda _: _tables.pop(key, None)), table)
    return table
