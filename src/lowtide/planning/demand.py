"""demand: from what is kept, and from when on the rest is held, to a plan's lists. Nothing is run before it is wanted.

When backward asks for a value that is not there, the ops are run that lead to it from what is there. What they make
on the way is held until nothing wants it any more, but only from its time on: before, it goes at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lowtide.planning.frontiers import Frontiers


def on_demand(
    fronts: Frontiers, keep: Iterable[int], since: Mapping[int, int] | None = None
) -> tuple[frozenset[int], dict[int, tuple[int, ...]]]:
    """A plan's lists (keep, runs). What turns out not to be wanted is not kept. Linear in the number of runs.

    Args:
        keep: values kept from forward on, besides those that every plan keeps.
        since: value -> the moment from which on it is held once it is made again; 0 if it is not named.
    """
    step = fronts.step
    kept = frozenset(keep) | {v for v, f in fronts.facts.items() if f.always or f.free}
    there, read = set(kept), set[int]()
    passing: set[int] = set()
    runs: dict[int, tuple[int, ...]] = {}
    for m, what in enumerate(step.moments):
        v = step.saves[~what].value if what < 0 else -1
        if v not in fronts.facts:
            there -= passing
            passing.clear()
        elif v in there:
            if v in kept:
                read.add(v)
        else:
            runs[m] = _leading_to(fronts, v, there, kept, read)
            for o in runs[m]:
                for f in fronts.made[o]:
                    if f.value not in there:
                        there.add(f.value)
                        if since is not None and m < since.get(f.value, 0):
                            passing.add(f.value)
    return frozenset(read), runs


def _leading_to(fronts: Frontiers, v: int, there: set[int], kept: frozenset[int], read: set[int]) -> tuple[int, ...]:
    """The ops that make `v` from what is there. Adds to `read` the kept values that they need."""
    facts, ops = fronts.facts, fronts.step.ops
    needed, todo = {facts[v].born}, [facts[v].born]
    while todo:
        for r in ops[todo.pop()].reads:
            if r not in facts:
                continue  # external
            if r in there:
                if r in kept:
                    read.add(r)
            elif facts[r].born not in needed:
                needed.add(facts[r].born)
                todo.append(facts[r].born)
    return tuple(sorted(needed))
