"""Gruslys et al.'s dynamic program for backpropagation through time under a memory budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from lowtide.errors import InputError
from lowtide.planning.chain import Chain
from lowtide.planning.solve.slots import slots_within, unfold
from lowtide.planning.solve.solution import Solution, Status, of_schedule
from lowtide.planning.solve.solver import ChainSolver


@dataclass(frozen=True)
class Bptt(ChainSolver):
    """Fewest forward runs with m slots, by dynamic programming: memory-efficient backpropagation through time.

    Attributes:
        slots: hidden states held at a time, the first among them; as in `revolve` if None.

    Idea: `C(t,m) = min_{1<=y<t} ( y + C(t-y, m-1) + C(y, m) )`: run y steps ahead, hold that state, finish the right
    part with one slot fewer, then the left part with the slot back. `C(t,1) = t(t+1)/2`, `C(1,m) = 1`.
    Complexity: O(t^2 m) time in numpy, O(t m) memory.
    Reference: Gruslys, Munos, Danihelka, Lanctot, Graves, Memory-Efficient Backpropagation Through Time, NeurIPS 2016,
    section 3.1 (hidden states; the variants that store internal states are `rotor` on equal stages).
    Assumes: equal sizes and times, as `revolve`, whose number of runs it equals.
    Use it: for unrolled recurrent networks; it would take other per-step costs where `revolve` has a formula only.
    """

    name: ClassVar[str] = "bptt"
    slots: int | None = None

    def __post_init__(self) -> None:
        if self.slots is not None and self.slots < 1:
            raise InputError(f"slots is {self.slots}: it must be at least 1, the first state")

    def solve_chain(self, chain: Chain, budget: int | None) -> Solution:
        slots = min(self.slots or slots_within(chain, budget), chain.n)
        runs, ahead = forward_runs(chain.n, slots)
        moves = unfold(chain.n, slots, lambda length, free: int(ahead[free, length]))
        stats = {"slots": slots, "claimed_runs": int(runs[slots, chain.n])}
        return of_schedule(self.name, chain, moves, Status.HEURISTIC, budget, stats)


def forward_runs(steps: int, slots: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """C(t,m) and the best y, both indexed [m, t] for m in 0..slots, t in 0..steps; row 0 is unused."""
    t = np.arange(steps + 1)
    runs = np.tile(t * (t + 1) // 2, (slots + 1, 1))
    ahead = np.ones((slots + 1, steps + 1), dtype=np.int64)
    for m in range(2, slots + 1):
        for length in range(2, steps + 1):
            y = t[1:length]
            total = y + runs[m - 1, length - 1 : 0 : -1] + runs[m, 1:length]
            best = int(total.argmin())
            runs[m, length], ahead[m, length] = total[best], best + 1
    return runs, ahead
