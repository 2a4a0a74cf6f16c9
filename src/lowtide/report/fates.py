"""What a plan does with each value of a step, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from lowtide.planning.compress import SHAPE, uncompressed
from lowtide.report.names import place, short_op
from lowtide.units import format_bytes

if TYPE_CHECKING:
    from lowtide.planning.plan import Plan
    from lowtide.planning.step import Code, Step


class What(str, Enum):
    """What happens to a value. The values are what people read."""

    KEPT = "kept"
    CODED = "held as a code"
    SOURCE = "kept to recompute from"
    RECOMPUTED = "recomputed"
    UNUSED = "dropped, and never asked for"
    PASSING = "recomputed on the way to others"
    FREE = "not saved: goes when forward is done with it"
    THERE = "there anyway"


@dataclass(frozen=True, slots=True)
class Fate:
    """One value under a plan.

    Attributes:
        value: its id.
        module, op: where it was written: module path ('' is the model itself) and full op name; '' for what stood
            before.
        nbytes: of its storage.
        what: what happens to it.
        saved_for: full names and modules of the forward ops whose backward wants it.
        asked_at: moments at which backward asks for it.
        made_at: moments at which it is recomputed, once per run.
        source_for: ids of forward ops that are run again and read it.
        pinned: why it cannot be recomputed, or ''.
        code_bytes: size of the code that is held in its place, 0 if there is none.
        alive_anyway: it needs no bytes of its own when backward first asks, since its storage lives on by itself.
    """

    value: int
    module: str
    op: str
    nbytes: int
    what: What
    saved_for: tuple[tuple[str, str], ...]
    asked_at: tuple[int, ...]
    made_at: tuple[int, ...]
    source_for: tuple[int, ...]
    pinned: str
    code_bytes: int
    alive_anyway: bool


def fates(plan: Plan) -> list[Fate]:
    """One entry per value that forward writes, and per one that backward asks for although it was there before; in
    the order of the network."""
    coded = plan.step
    step = uncompressed(coded)  # in which autograd saves what it saves; codes are answers to that
    held: dict[int, list[Code]] = {}
    for code in coded.codes:
        held.setdefault(code.of, []).append(code)
    made: dict[int, list[int]] = {}
    read: dict[int, dict[int, None]] = {}
    for m, ops in sorted(plan.runs.items()):
        for o in ops:
            for w in step.ops[o].writes:
                made.setdefault(w, []).append(m)
            for r in step.ops[o].reads:
                read.setdefault(r, {})[o] = None
    out: list[Fate] = []
    for v, value in enumerate(step.values):
        if value.op >= step.n_forward or (value.op < 0 and v not in step.saves_of):
            continue
        saves = [step.saves[s] for s in step.saves_of.get(v, ())]
        asked = sorted({u for s in saves for u in s.uses})
        storage = step.storages[value.storage]
        op = step.ops[value.op] if value.op >= 0 else None
        out.append(
            Fate(
                value=v,
                module=op.module if op else "",
                op=op.name if op else "",
                nbytes=storage.nbytes,
                what=_what(plan, step, v, held.get(v, []), made),
                saved_for=tuple(dict.fromkeys((step.ops[s.op].name, step.ops[s.op].module) for s in saves)),
                asked_at=tuple(asked),
                made_at=tuple(made.get(v, ())),
                source_for=tuple(read.get(v, ())),
                pinned=step.is_pinned(v),
                code_bytes=sum(coded.nbytes(c.value) for c in held.get(v, ())),
                alive_anyway=bool(asked) and storage.death > asked[0] and value.overwritten < 0,
            )
        )
    return out


def _what(plan: Plan, step: Step, v: int, codes: list[Code], made: dict[int, list[int]]) -> What:
    saves = step.saves_of.get(v, ())
    saved, asked = bool(saves), any(step.saves[s].uses for s in saves)
    if step.is_external(v):
        return What.THERE
    if v in plan.keep:
        return What.KEPT if saved else What.SOURCE
    every = bool(codes) and sum(len(c.saves) for c in codes) == len(saves)  # no save wants all of it
    if every and all(c.codec == SHAPE or c.value in plan.keep for c in codes):
        return What.CODED
    if v in made:
        return What.RECOMPUTED if asked else What.PASSING
    return What.UNUSED if saved else What.FREE


def sentences(plan: Plan, fate: Fate) -> list[str]:
    """What happens to the value and why, a sentence each."""
    return [_happens(plan, fate), *_because(plan.step, fate)]


def _happens(plan: Plan, fate: Fate) -> str:
    step = plan.step
    if fate.what is What.THERE:
        return "It is a parameter, a buffer or an input: there anyway, at no cost."
    if fate.what in (What.KEPT, What.SOURCE):
        return "Kept from forward on."
    if fate.what is What.CODED:
        size = f"a code of {format_bytes(fate.code_bytes)}" if fate.code_bytes else "its shape"
        return f"Dropped in forward: all that backward needs of it is {size}, which is kept."
    if fate.what is What.FREE:
        over = step.values[fate.value].overwritten
        if 0 <= over < step.n_forward:
            op = step.ops[over]
            return f"Not saved for backward: {short_op(op.name)} of {op.module or 'the model itself'} overwrites it."
        return "Not saved for backward: it goes as soon as forward is done with it."
    if fate.what is What.UNUSED:
        return "Dropped in forward; backward never asks for it."
    times = "once" if len(fate.made_at) == 1 else f"{len(fate.made_at)} times"
    where = "; the ".join(place(step, m) for m in fate.made_at[:3])
    more = f"; and {len(fate.made_at) - 3} more" if len(fate.made_at) > 3 else ""
    what = "Recomputed" if fate.what is What.PASSING else "Dropped in forward and recomputed"
    on = " on the way to others" if fate.what is What.PASSING else ""
    return f"{what} {times}{on}: before the {where}{more}."


def _because(step: Step, fate: Fate) -> list[str]:
    out: list[str] = []
    if fate.saved_for:
        names = [f"{short_op(name)} of {module or 'the model itself'}" for name, module in fate.saved_for]
        out.append(f"Saved for the backward of {_some(names)}.")
    if fate.pinned and fate.what in (What.KEPT, What.SOURCE):
        out.append(f"It cannot be recomputed: {fate.pinned}.")
    if fate.alive_anyway and fate.what is not What.THERE:
        out.append("Its memory is still in use by then for another reason, so that dropping it would free nothing.")
    if fate.source_for:
        names = [f"{short_op(step.ops[o].name)} of {step.ops[o].module or 'the model itself'}" for o in fate.source_for]
        verb = "Recomputation starts from it" if fate.what in (What.KEPT, What.SOURCE, What.THERE) else "Read"
        out.append(f"{verb} where {_some(names)} {'runs' if len(names) == 1 else 'run'} again.")
    return out


def _some(names: list[str], n: int = 3) -> str:
    if len(names) > n:
        return f"{', '.join(names[:n])} and {len(names) - n} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
