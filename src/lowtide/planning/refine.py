"""refine: single values of a choice kept, held or rebuilt again, as long as the budget holds and time falls."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import numpy as np

from lowtide.planning.gauge import Gauge, Ints, Reading
from lowtide.planning.lazy import Choice


class Refiner:
    """Improves choices for one budget. The same input gives the same result unless the deadline comes first.

    Attributes:
        budget: bytes that the peak may have.
        tries: readings left; the work is bounded by it.
        deadline: a `perf_counter` time after which nothing new is begun, or None.
    """

    def __init__(self, gauge: Gauge, budget: int, tries: int, deadline: float | None = None) -> None:
        self.gauge, self.lazy, self.budget = gauge, gauge.lazy, budget
        self.tries, self.deadline = tries, deadline
        self.keepable = frozenset(self.lazy.free)
        must = self.lazy.must
        self.values = tuple(v for v in self.lazy.fronts.facts if v not in must)

    @property
    def is_over(self) -> bool:
        return self.tries <= 0 or (self.deadline is not None and perf_counter() > self.deadline)

    def read(self, choice: Choice) -> Reading:
        self.tries -= 1
        return self.gauge.read(choice)

    def fits(self, reading: Reading) -> bool:
        return reading.peak_bytes <= self.budget

    # -- to fit -------------------------------------------------------------------------------------------------

    def squeeze(self, choice: Choice, at_most_s: float = float("inf")) -> tuple[Reading, Choice]:
        """Give up what costs least time per byte until the choice fits, or nothing helps any more without adding
        `at_most_s` seconds or more. The result may still not fit."""
        level, added_s = self._levels(choice)
        excess = self._excess(level)
        while excess > 0:
            for other in self._losses(choice, added_s, level):
                if self.is_over:
                    break
                other_level, other_s = self._levels(other)
                less = self._excess(other_level)
                if less < excess and other_s < at_most_s:
                    choice, level, added_s, excess = other, other_level, other_s, less
                    break
            else:
                break
            if self.is_over:
                break
        return Reading(int(level.max(initial=0)), added_s), choice

    def _levels(self, choice: Choice) -> tuple[Ints, float]:
        self.tries -= 1
        return self.gauge.levels(choice)

    def _excess(self, level: Ints) -> int:
        """How much the curve is above the budget, summed over moments: a peak comes down step by step by it."""
        return int(np.maximum(level - self.budget, 0).sum())

    def _losses(self, choice: Choice, now_s: float, level: Ints) -> list[Choice]:
        """What may free memory at the peak, as the choices after it: least seconds lost per byte first."""
        found: list[tuple[float, int, Choice]] = []
        gauge, peak = self.gauge, int(level.argmax())
        for v in self.values:
            options: list[Choice] = []
            if v in choice.keep:
                if gauge.start[v] > peak:
                    continue
                options = [
                    Choice(choice.keep - {v}, choice.again - {v}),
                    Choice(choice.keep - {v}, choice.again | {v}),
                ]
            elif v not in choice.again:
                options = [Choice(choice.keep, choice.again | {v})]
            for other in options:
                lost = max(gauge.added_s(other) - now_s, 0.0)
                found.append((lost / max(1, gauge.size[v]), v, other))
        found.sort(key=lambda x: x[:2])
        return [other for _, _, other in found]

    # -- to be quicker ------------------------------------------------------------------------------------------

    def improve(self, reading: Reading, choice: Choice) -> tuple[Reading, Choice]:
        """From a choice that fits to one that is no slower: fill what is free, exchange, until neither helps."""
        while not self.is_over and reading.added_s > 0:
            before = reading.added_s
            reading, choice = self._fill(reading, choice)
            reading, choice = self._exchange(reading, choice)
            if reading.added_s >= before * (1 - 1e-6):
                break
        return reading, choice

    def _savings(self, choice: Choice, now_s: float) -> list[tuple[float, float, int]]:
        """Values whose keeping or holding saves time: seconds per byte, seconds, value."""
        found: list[tuple[float, float, int]] = []
        for v in self.values:
            saved = max((now_s - self.gauge.added_s(c) for c in _more(choice, v, self.keepable)), default=0.0)
            if saved > 1e-15:
                found.append((saved / max(1, self.gauge.size[v]), saved, v))
        return found

    def _fill(self, reading: Reading, choice: Choice) -> tuple[Reading, Choice]:
        """Take what saves time and fits, best per byte first."""
        improved = True
        while improved:
            improved = False
            for _, _, v in sorted(self._savings(choice, reading.added_s), key=lambda x: (-x[0], x[2])):
                for other in _more(choice, v, self.keepable):
                    if self.is_over:
                        return reading, choice
                    new = self.read(other)
                    if self.fits(new) and is_better(new, reading):
                        reading, choice, improved = new, other, True
                        break
        return reading, choice

    def _exchange(self, reading: Reading, choice: Choice, most: int = 24) -> tuple[Reading, Choice]:
        """For values that save much but do not fit: give up others for them."""
        savings = sorted(self._savings(choice, reading.added_s), key=lambda x: (-x[1], x[2]))
        for _, _, v in savings[:most]:
            for other in _more(choice, v, self.keepable):
                if self.is_over:
                    return reading, choice
                new, found = self.squeeze(other, reading.added_s * (1 - 1e-9))
                if self.fits(new) and is_better(new, reading):
                    reading, choice = new, found
                    break
        return reading, choice


def is_better(a: Reading, b: Reading) -> bool:
    """Less time, or as little and a lower peak."""
    if a.added_s < b.added_s * (1 - 1e-12) - 1e-15:
        return True
    return a.added_s <= b.added_s and a.peak_bytes < b.peak_bytes


def _more(choice: Choice, v: int, keepable: frozenset[int]) -> Iterator[Choice]:
    """`v` with more memory than it has."""
    if v in choice.keep:
        return
    if v in keepable:
        yield Choice(choice.keep | {v}, choice.again - {v})
    if v in choice.again:
        yield Choice(choice.keep, choice.again - {v})
