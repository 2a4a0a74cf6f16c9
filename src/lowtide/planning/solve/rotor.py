"""Least time under a budget on chains of unequal stages, any number of recomputations."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from lowtide.errors import InputError
from lowtide.planning.chain import Chain
from lowtide.planning.rehearse import Action, Move, moves_of
from lowtide.planning.solve.linear import least_peak, least_recomputation
from lowtide.planning.solve.solution import Solution, Status, of_schedule
from lowtide.planning.solve.solver import ChainSolver

Row = npt.NDArray[np.float64]

_MOST_ENTRIES = 30_000_000  # of each of the three tables, 240 MB
_FEWEST_SLOTS = 30  # with fewer, rounding up to units leaves little to plan with


@dataclass(frozen=True)
class Rotor(ChainSolver):
    """Least time within a memory budget over all persistent schedules, stages being as unequal as they like.

    Attributes:
        slots: into how many units the budget is divided; sizes are rounded up to units, so that the budget holds for
            certain and the time is least up to that rounding (exactly least if the budget has at most `slots` bytes).
            Above 346 stages fewer are used, so that the tables stay below 1 GB.

    Idea: `Opt(m,c,b)` is the least time to run stages c+1..b forward and backward with m bytes free besides
    activation c: either run ahead to some j and hold it, `sum_{c<l<=j} f_l + Opt(m - a_j, j, b) + Opt(m, c, j)`; or
    record stage c+1 at once, `f + b + Opt(m - s_{c+1} - a_{c+1}, c+1, b)`, a_{c+1} counting only where it is saved or
    held.
    Complexity: O(n^3 slots) time, O(n^2 slots) memory, in numpy; 100 stages in 0.2 s, 200 in 1 to 3 s.
    Reference: Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, Optimal checkpointing for heterogeneous chains, 2019
    (arXiv 1911.13214), section 4, with this library's chain model instead of theirs.
    Assumes: schedules are persistent: an activation once held stays until the stages behind it are done.
    Use it: when a budget is given and one recomputation per stage costs too much time or does not fit. On a step it is
    worth trying below `linear`'s peak, too: stages that are cheap to run again cost little time.
    Without a budget it takes `linear`'s least peak for one. If nothing fits, the answer is the least peak it found.
    """

    name: ClassVar[str] = "rotor"
    exact: ClassVar[bool] = True
    slots: int = 500

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise InputError(f"slots is {self.slots}: it must be at least 1")

    def solve_chain(self, chain: Chain, budget: int | None) -> Solution:
        slots = min(self.slots, 2 * _MOST_ENTRIES // (chain.n * (chain.n + 1)))
        if slots < min(self.slots, _FEWEST_SLOTS):
            raise InputError(
                f"rotor's tables for {chain.n} stages do not fit in memory: reduce to fewer stages "
                "(Rotor(granularity='block')), or take solver='linear'"
            )
        single, least = least_peak(chain)
        wanted = least if budget is None else budget
        table = _Table(chain, wanted, slots)
        if table.is_feasible:
            found = of_schedule(self.name, chain, table.moves(), Status.LEAST_COST, budget, table.stats)
            once = least_recomputation(chain, wanted)  # where units are coarse a plan with one recomputation can win
            if once is None or chain.recompute_cost(once) >= found.recompute_cost:
                return found
            return of_schedule(self.name, chain, moves_of(chain, once), Status.LEAST_COST, budget, table.stats)
        if wanted >= least:
            once = least_recomputation(chain, wanted) or single
            return of_schedule(self.name, chain, moves_of(chain, once), Status.LEAST_COST, budget, table.stats)
        table = _Table(chain, least, slots)
        moves = table.moves(table.least_units) if table.is_feasible else moves_of(chain, single)
        return of_schedule(self.name, chain, moves, Status.LEAST_COST, budget, table.stats)


class _Table:
    """Opt(m,c,b) for all c < b and m = 0..slots units. `best[c][b-c-1]` is Opt, `recording[c][b-c-1]` its second case,
    `held[b][c]` is Opt(m - a_c, c, b): rows over m."""

    def __init__(self, chain: Chain, budget: int, slots: int) -> None:
        self.chain = chain
        free = max(0, budget - chain.a[0])
        self.unit = max(1, -(-free // slots))
        self.width = free // self.unit + 1
        self.forward = [0.0, *accumulate(chain.forward)]
        n = chain.n
        self.best = [np.full((n - c, self.width), np.inf) for c in range(n)]
        self.recording = [np.full((n - c, self.width), np.inf) for c in range(n)]
        self.held = [np.full((b, self.width), np.inf) for b in range(n + 1)]
        if budget < chain.a[0]:
            return  # not even the input fits: every row stays infinite
        for length in range(1, n + 1):
            for c in range(n - length + 1):
                self._fill(c, c + length)

    @property
    def is_feasible(self) -> bool:
        return bool(np.isfinite(self.best[0][-1, -1]))

    @property
    def least_units(self) -> int:
        return int(np.isfinite(self.best[0][-1]).argmax())

    @property
    def stats(self) -> dict[str, float]:
        return {"unit_bytes": self.unit, "claimed_time": float(self.best[0][-1, -1])}

    def moves(self, units: int | None = None) -> list[Move]:
        """The schedule of least time with `units` units free (all of them if None)."""
        chain, out = self.chain, list[Move]()
        todo: list[tuple[int, int, int, bool] | Move] = [(self.width - 1 if units is None else units, 0, chain.n, True)]
        while todo:
            item = todo.pop()
            if isinstance(item, Move):
                out.append(item)
                continue
            m, c, b, is_held = item
            # the activation of a part that must start by recording is in hand, not held
            if is_held:
                out.append(Move(Action.TAKE, c))
                if self.best[c][b - c - 1, m] < self.recording[c][b - c - 1, m]:
                    j = c + 1 + int(self._ahead(c, b)[:, m].argmin())
                    out += [Move(Action.RUN, k) for k in range(c + 1, j + 1)]
                    out.append(Move(Action.HOLD, j))
                    right = (m - self._units(chain.a[j]), j, b, True)
                    todo += [(m, c, j, True), Move(Action.DROP, j), right]
                    continue
            k = c + 1
            out.append(Move(Action.RECORD, k))
            todo.append(Move(Action.BACKWARD, k))
            if k < b:
                rest = m - self._units(self._own(k))
                extra = 0 if chain.o[k - 1] else self._units(chain.a[k])
                if self._may_stay_in_hand(k) and (
                    rest < extra or self.recording[k][b - k - 1, rest] <= self.best[k][b - k - 1, rest - extra]
                ):
                    todo.append((rest, k, b, False))
                else:
                    out.append(Move(Action.HOLD, k))
                    todo += [Move(Action.DROP, k), (rest - extra, k, b, True)]
        return out

    def _fill(self, c: int, b: int) -> None:
        chain, k = self.chain, c + 1
        if k == b:
            rest = np.zeros(self.width)
        elif chain.o[k - 1]:
            rest = self.best[k][b - k - 1]
        else:
            rest = self.held[b][k]
            if self._may_stay_in_hand(k):
                rest = np.minimum(rest, self.recording[k][b - k - 1])
        own = self._own(k)
        row = chain.forward[k - 1] + chain.backward[k - 1] + self._shifted(rest, self._units(own))
        row[: self._units(own + chain.t[k - 1])] = np.inf
        self.recording[c][b - c - 1] = row
        best = row if k == b else np.minimum(row, self._ahead(c, b).min(axis=0))
        self.best[c][b - c - 1] = best
        self.held[b][c] = self._shifted(best, self._units(chain.a[c]))

    def _ahead(self, c: int, b: int) -> Row:
        """Time of running ahead from c to j and holding it, for j = c+1..b-1 (rows)."""
        run = np.array(self.forward[c + 1 : b]) - self.forward[c]
        return run[:, None] + self.held[b][c + 1 : b] + self.best[c][: b - c - 1]

    def _own(self, k: int) -> int:
        return self.chain.s[k - 1] + (self.chain.a[k] if self.chain.o[k - 1] else 0)

    def _may_stay_in_hand(self, k: int) -> bool:
        """Stage k+1 can be recorded from activation k without anyone storing that activation."""
        return not self.chain.o[k - 1] and not self.chain.i[k]

    def _units(self, nbytes: int) -> int:
        return -(-nbytes // self.unit)

    def _shifted(self, row: Row, units: int) -> Row:
        """`row` at m - units: infinite where that is negative."""
        out = np.full(self.width, np.inf)
        if units < self.width:
            out[units:] = row[: self.width - units]
        return out
