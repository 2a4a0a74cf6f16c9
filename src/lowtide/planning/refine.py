"""refine: single values of a choice kept, held or rebuilt again, as long as the budget holds and time falls."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from time import perf_counter

import numpy as np

from lowtide.planning.gauge import Gauge, Ints, Reading
from lowtide.planning.lazy import Choice


class Refiner:
    """Improves choices for one budget. The same input gives the same result unless the deadline comes first.

    Attributes:
        budget: bytes that the peak may have.
        tries: readings left; the work is bounded by it. A time alone counts for a quarter.
        deadline: a `perf_counter` time after which nothing new is begun, or None.
    """

    def __init__(self, gauge: Gauge, budget: int, tries: float, deadline: float | None = None) -> None:
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

    def is_closer(self, a: Reading, b: Reading) -> bool:
        """Fitting before not fitting, then less time; of those that do not fit, the lower peak."""
        over_a, over_b = a.peak_bytes - self.budget, b.peak_bytes - self.budget
        if over_a > 0 or over_b > 0:
            return (max(over_a, 0), a.added_s) < (max(over_b, 0), b.added_s)
        return is_better(a, b)

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

    def anneal(self, reading: Reading, choice: Choice, seed: int = 0, heat: float = 0.01) -> tuple[Reading, Choice]:
        """Random changes of one or two values, uphill ones less and less (Kirkpatrick et al. 1983), until the tries
        are used up. Bytes above the budget cost time on the way. The result is no slower and fits, or else is no
        larger.

        Args:
            heat: what uphill steps are accepted at first, as a share of the forward pass's seconds.
        """
        rng = random.Random(seed)
        scale = sum(self.gauge.seconds[: self.lazy.fronts.n])
        if not self.values or scale <= 0:
            return reading, choice
        price = 30 * scale / max(1, self.budget)
        cost = reading.added_s + price * max(0, reading.peak_bytes - self.budget)
        best, now = (reading, choice), choice
        tries = self.tries
        while not self.is_over:
            heat_s = scale * heat * 1e-3 ** (1 - self.tries / tries)
            other = self._changed(now, rng)
            # Time alone is quick to tell, and mostly tells.
            limit = cost - heat_s * math.log(1 - rng.random())
            if self.gauge.added_s(other) > limit:
                self.tries -= 0.25
                continue
            new = self.read(other)
            new_cost = new.added_s + price * max(0, new.peak_bytes - self.budget)
            if new_cost <= limit:
                now, cost = other, new_cost
                if self.is_closer(new, best[0]):
                    best = (new, other)
        return best

    def _changed(self, choice: Choice, rng: random.Random) -> Choice:
        keep, again = set(choice.keep), set(choice.again)
        for _ in range(1 if rng.random() < 0.6 else 2):
            v = rng.choice(self.values)
            fates = [k for k in (0, 1, 2) if k != (0 if v in keep else 1 if v in again else 2)]
            if v not in self.keepable and 0 in fates:
                fates.remove(0)
            fate = rng.choice(fates)
            keep.discard(v)
            again.discard(v)
            if fate == 0:
                keep.add(v)
            elif fate == 1:
                again.add(v)
        return Choice(frozenset(keep), frozenset(again))

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
