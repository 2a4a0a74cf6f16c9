"""Makers of valid plans for any step: arbitrary ones, which no solver would make. `judge` checks each."""

from __future__ import annotations

import random
from collections.abc import Callable

from lowtide.planning.judge import judge
from lowtide.planning.plan import Plan
from lowtide.planning.step import Step


def keep_all(step: Step) -> Plan:
    """What PyTorch does."""
    saved = {s.value for s in step.saves if not step.is_external(s.value)}
    return judge(step, {v for v in saved if _lasts(step, v)}, {}, "keep all", "for tests")


def _lasts(step: Step, v: int) -> bool:
    """Whether the value is not overwritten before its last use."""
    over = step.values[v].overwritten
    uses = [u for s in step.saves_of[v] for u in step.saves[s].uses]
    return over < 0 or max(uses, default=step.n_moments) < step.ops[over].moment


def drop_everything(step: Step) -> Plan:
    """Keep only what must be kept; recompute every saved value from there, at its first use, once."""
    return _plan(step, set(), _Lists(random.Random(0), 0.0, 0.0), "drop everything")


def random_plan(step: Step, seed: int) -> Plan:
    """Keep a random part, recompute the rest at random points: early, late, several times."""
    rng = random.Random(seed)
    chance = rng.choice([0.0, 0.1, 0.3, 0.5, 0.8])
    keepable = [v.op >= 0 and v.overwritten < 0 and v.op < step.n_forward for v in step.values]
    saved = sorted({s.value for s in step.saves})
    keep = {v for v in saved if keepable[v] and rng.random() < chance}
    if rng.random() < 0.3:  # sources that autograd did not save
        keep |= {v for v in range(len(step.values)) if keepable[v] and rng.random() < 0.1}
    lists = _Lists(rng, again=rng.choice([0.0, 0.0, 0.2, 0.6]), early=rng.choice([0.0, 0.0, 0.1, 0.5]))
    return _plan(step, keep, lists, f"random {seed}")


PLANS: dict[str, Callable[[Step], Plan]] = {
    "keep all": keep_all,
    "drop everything": drop_everything,
    "random": lambda step: random_plan(step, 1),
}


class _Lists:
    """How recompute lists are made: the chance to run an op again although its value is there, and to answer
    later unpacks too."""

    def __init__(self, rng: random.Random, again: float, early: float) -> None:
        self.rng, self.again, self.early = rng, again, early


def _plan(step: Step, keep: set[int], lists: _Lists, name: str) -> Plan:
    keep = {v for v in keep if not step.is_external(v)}
    needed = _rebuildable(step, keep)
    asked = [(m, step.saves[~what].value) for m, what in enumerate(step.moments) if what < 0]
    for _, v in asked:
        if v not in keep and not step.is_external(v) and not needed(v):
            keep.add(v)
    # What backward never asks for cannot be dropped with certainty either: the tape has no list that would rebuild it.
    used = {v for _, v in asked}
    keep |= {s.value for s in step.saves if s.value not in used and step.values[s.value].overwritten < 0}
    keep = {v for v in keep if not step.is_external(v)}
    present = set(keep)
    runs: dict[int, tuple[int, ...]] = {}
    for i, (m, v) in enumerate(asked):
        if v in keep or step.is_external(v):  # the tape is not asked
            continue
        ops = _closure(step, v, keep, present, lists, needed)
        for _, later in asked[i + 1 : i + 9]:
            made = step.values[later].op  # a backward inside forward comes before ops that are still to run
            if (made < 0 or step.ops[made].moment < m) and lists.rng.random() < lists.early:
                ops |= _closure(step, later, keep, present, lists, needed)
        if ops:
            runs[m] = tuple(sorted(ops))
            present.update(w for o in ops for w in step.ops[o].writes)
    return judge(step, keep, runs, name, "for tests")


def _closure(
    step: Step, value: int, keep: set[int], present: set[int], lists: _Lists, needed: Callable[[int], bool]
) -> set[int]:
    """Forward ops to run so that `value` is there."""
    ops: set[int] = set()
    todo = [value]
    while todo:
        v = todo.pop()
        if step.is_external(v) or v in keep:
            continue
        o = step.values[v].op
        if o in ops or (v in present and not (lists.again and lists.rng.random() < lists.again)):
            continue
        assert needed(v)
        ops.add(o)
        todo += step.ops[o].reads
    return ops


def _rebuildable(step: Step, keep: set[int]) -> Callable[[int], bool]:
    """value -> whether it can be had from external and kept values by running ops again; keeps what stands in the way
    where it can be kept."""
    known: dict[int, bool] = {}
    for v, value in enumerate(step.values):  # in the order they were written
        if value.op >= step.n_forward:
            known[v] = False
        elif value.op < 0:
            known[v] = step.is_external(v)
        else:
            op = step.ops[value.op]
            known[v] = not op.pinned and all(known[r] or r in keep for r in op.reads)
            if not known[v] and value.overwritten < 0 and not step.storages[value.storage].external:
                keep.add(v)

    return lambda v: known[v]


def drop_within(step: Step, unit: Callable[[str], str]) -> Plan:
    """Drop everything, but start anew in every unit: what an op of another unit reads is kept.

    Args:
        unit: path of a module -> the unit it belongs to.
    """
    keep: set[int] = set()
    for op in step.ops[: step.n_forward]:
        for v in op.reads:
            made = step.values[v]
            foreign = made.op >= 0 and unit(step.ops[made.op].module) != unit(op.module)
            if foreign and made.overwritten < 0 and not step.is_external(v):
                keep.add(v)
    return _plan(step, keep, _Lists(random.Random(0), 0.0, 0.0), "drop within units")
