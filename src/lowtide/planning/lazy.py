"""lazy: from what is kept and what is held to a plan's lists. Nothing is run before it is wanted.

A *choice* gives each value of forward one of three fates: it is kept from forward on; it is dropped, and once it was
rebuilt it is held until nothing wants it any more; or it is dropped and rebuilt *again* each time it is wanted. The
lists follow: when backward asks for a value that is not there, the ops are run that lead to it from what is there.

Cheap values that are wanted early on the way to others, and once more much later, should be rebuilt again: between
the two they take no memory (DESIGN, fact 18).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from lowtide.planning.frontiers import Frontiers
from lowtide.planning.simulate import Timeline, simulate


class Choice(NamedTuple):
    """What happens to the values of forward: those in neither set are rebuilt once and then held."""

    keep: frozenset[int]
    again: frozenset[int]


Lists = tuple[frozenset[int], Mapping[int, tuple[int, ...]]]


class Lazy:
    """Turns choices about one step into lists.

    Attributes:
        must: values that every plan keeps: they cannot be rebuilt, or keeping them costs nothing.
        free: values that can be kept or dropped as one likes, in the order of the ops that write them.
    """

    def __init__(self, fronts: Frontiers) -> None:
        step = self.step = fronts.step
        self.fronts = fronts
        self.must = frozenset(v for v, f in fronts.facts.items() if f.always or f.free)
        self.free = tuple(v for v in fronts.facts if v not in self.must and step.values[v].overwritten < 0)
        self.asked = [
            (m, step.saves[~what].value)
            for m, what in enumerate(step.moments)
            if what < 0 and not step.is_external(step.saves[~what].value)
        ]
        n = fronts.n
        self.reads = [tuple(r for r in op.reads if not step.is_external(r)) for op in step.ops[:n]]
        self.writes = [tuple(w for w in op.writes if w in fronts.facts) for op in step.ops[:n]]
        self.maker = {v: f.born for v, f in fronts.facts.items()}

    def keep_all(self) -> Choice:
        """What PyTorch does."""
        return Choice(
            frozenset(v for v, f in self.fronts.facts.items() if f.dropped_until or v in self.must), frozenset()
        )

    def lists(self, choice: Choice) -> Lists:
        """The plan's lists. What turns out not to be wanted is not kept.

        Linear in the number of values and runs.
        """
        keep, again = choice.keep | self.must, choice.again
        there: set[int] = set(keep)
        passing: set[int] = set()  # rebuilt for the node that is asking now, and not held
        read: set[int] = set()
        runs: dict[int, tuple[int, ...]] = {}
        last = -2
        for m, v in self.asked:
            if m != last + 1 and passing:
                there -= passing
                passing.clear()
            last = m
            if v in there:
                if v in keep:
                    read.add(v)
                continue
            ops = self._leading_to(v, there, keep, read)
            runs[m] = ops
            for o in ops:
                for w in self.writes[o]:
                    if w not in there:
                        there.add(w)
                        if w in again:
                            passing.add(w)
        return frozenset(read), runs

    def _leading_to(self, v: int, there: set[int], keep: Set[int], read: set[int]) -> tuple[int, ...]:
        """The ops that make `v` from what is there."""
        needed = {self.maker[v]}
        todo = [self.maker[v]]
        while todo:
            for r in self.reads[todo.pop()]:
                if r in there:
                    if r in keep:
                        read.add(r)
                    continue
                o = self.maker[r]
                if o not in needed:
                    needed.add(o)
                    todo.append(o)
        return tuple(sorted(needed))

    def timeline(self, choice: Choice) -> Timeline:
        return simulate(self.step, self.lists(choice))
