"""Walk along the chain and cut whenever a byte budget is spent."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from lowtide.errors import InputError
from lowtide.planning.chain import Chain
from lowtide.planning.solve.solution import Solution, Status, of_checkpoints
from lowtide.planning.solve.solver import ChainSolver


@dataclass(frozen=True)
class Greedy(ChainSolver):
    """Cut whenever the segment has stored b bytes; b is searched on a grid.

    Attributes:
        grid: how many values of b are tried around each guess.

    Idea: add up what the stages store; past b, keep the output of the stage and start again. A first walk says how
    many bytes x its checkpoints and y its worst segment hold; b is then searched in `[sqrt(xy/2), sqrt(2xy)]`, and,
    since one guess can be far off, over the whole range from the largest stage to everything as well. The walk of
    least peak wins; under a budget the one that fits it and recomputes least.
    Complexity: O(n) per walk, O(n * grid) in all.
    Reference: Chen et al. 2016 (arXiv 1604.06174), algorithm 3 and section 4.2.
    Assumes: nothing about sizes; it takes no account of transients while it walks.
    Use it: to compare with; `linear` is never worse.
    """

    name: ClassVar[str] = "greedy"
    grid: int = 12

    def __post_init__(self) -> None:
        if self.grid < 2:
            raise InputError(f"grid is {self.grid}: it must be at least 2")

    def solve_chain(self, chain: Chain, budget: int | None) -> Solution:
        found = walks(chain, self.grid)
        judged = sorted((chain.peak_bytes(w), chain.recompute_cost(w), w) for w in found)
        best = judged[0][2]
        if budget is not None and judged[0][0] <= budget:
            best = min((cost, peak, w) for peak, cost, w in judged if peak <= budget)[2]
        return of_checkpoints(self.name, chain, best, Status.HEURISTIC, budget, {"walks": len(found)})


def walks(chain: Chain, grid: int = 12) -> set[tuple[int, ...]]:
    """The checkpoints of all walks that `Greedy` tries."""
    stored = [b - a for a, b in zip(chain.stored, chain.stored[1:], strict=False)]  # per stage
    low, high = max(1, *stored), max(2, sum(stored))
    wide = _geometric(low, high, grid)
    held = {b: sum(chain.a[c] for c in walk(stored, b)) for b in wide}
    guess = min(wide, key=lambda b: held[b] + b)
    middle = sqrt(max(1, held[guess]) * guess)
    return {tuple(walk(stored, b)) for b in (*wide, *_geometric(middle / sqrt(2), middle * sqrt(2), grid))}


def walk(stored: list[int], b: float) -> list[int]:
    """Checkpoints of one walk: cut after the stage with which the segment holds more than `b` bytes."""
    checkpoints: list[int] = []
    held = 0
    for k, nbytes in enumerate(stored[:-1], 1):
        held += nbytes
        if held > b:
            checkpoints.append(k)
            held = 0
    return checkpoints


def _geometric(low: float, high: float, count: int) -> list[float]:
    return [low * (high / low) ** (q / (count - 1)) for q in range(count)]
