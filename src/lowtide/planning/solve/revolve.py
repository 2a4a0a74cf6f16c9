"""Griewank and Walther's binomial schedule for equal stages."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import ClassVar

from lowtide.errors import InputError
from lowtide.planning.chain import Chain
from lowtide.planning.solve.slots import slots_within, unfold
from lowtide.planning.solve.solution import Solution, Status, of_schedule
from lowtide.planning.solve.solver import ChainSolver


@dataclass(frozen=True)
class Revolve(ChainSolver):
    """Fewest forward runs with a given number of slots, stages being equal: the binomial schedule.

    Attributes:
        slots: activations held at a time, the model's input among them; from the budget if None (without a budget about
            log2(n), which keeps the runs of any stage near log2(n) too).

    Idea: with s slots and at most r runs of a stage (the recording one aside) a chain of `C(s+r, s)` stages can be run
    backward. Hold the activation that splits the chain into two such chains, one slot fewer on its right, one run fewer
    on its left.
    Complexity: O(1) per split, O(number of runs) in all.
    Reference: Griewank and Walther, Algorithm 799: Revolve, ACM TOMS 26(1), 2000.
    Assumes: equal sizes and equal times; on others the schedule is valid and its figures are its own, but nothing is
    least. One stage is recorded at a time.
    Use it: on long chains of equal stages (recurrent networks, time steps) with very little memory; `rotor` otherwise.
    """

    name: ClassVar[str] = "revolve"
    slots: int | None = None

    def __post_init__(self) -> None:
        if self.slots is not None and self.slots < 1:
            raise InputError(f"slots is {self.slots}: it must be at least 1, the model's input")

    def solve_chain(self, chain: Chain, budget: int | None) -> Solution:
        slots = self.slots or slots_within(chain, budget)
        moves = unfold(chain.n, slots, split)
        stats = {"slots": slots, "claimed_runs": forward_runs(chain.n, slots)}
        return of_schedule(self.name, chain, moves, Status.HEURISTIC, budget, stats)


def repetitions(length: int, slots: int) -> int:
    """The least r with `C(slots + r, slots) >= length`."""
    r = 0
    while comb(slots + r, slots) < length:
        r += 1
    return r


def forward_runs(length: int, slots: int) -> int:
    """Fewest stage runs, the recording ones included, that a chain of `length` stages needs with `slots` slots:
    `r l - C(s+r, r-1) + l` with r as in `repetitions`."""
    r = repetitions(length, slots)
    return r * length - (comb(slots + r, r - 1) if r > 0 else 0) + length


def split(length: int, slots: int) -> int:
    """How many stages to run ahead: the least number that leaves `length - y` within reach of one slot fewer and the
    first `y` within reach of one run fewer."""
    r = repetitions(length, slots)
    least = comb(slots + r - 2, slots) if r >= 2 else 0  # below it the left part could do with two runs fewer
    right = length - comb(slots - 1 + r, slots - 1)  # below it the right part needs one run more
    return min(max(least, right, 1), length - 1)
