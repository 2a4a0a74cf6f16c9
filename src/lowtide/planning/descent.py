"""descent: bring the peak of a plan down by moves at the places where it is highest, within a limit on added cost.

Each round aims a little below the best peak so far. While a place is above the aim, all moves there are tried, and of
those that lower the *excess* (bytes above the aim, summed over places, so that a long plateau comes down piece by
piece) the one that lowers it most per added cost is taken. The excess falls with every move, so that a round ends.
Then runs are left out whose results fit into memory in the meantime. If the aim was missed, the next is nearer.

Nothing here is random: the same step and limits give the same plan, unless the deadline comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from lowtide.planning.account import Account, Accountant, Row
from lowtide.planning.moves import Mover


@dataclass(frozen=True)
class Limits:
    """What a search may spend.

    Attributes:
        cost: added cost that a plan may have, in the unit of `Account.cost`.
        recompute: how often any op may run again; None: no limit.
        floor: no need to bring the peak below this many bytes.
        tries: rows that may be counted.
        deadline: a `perf_counter` time after which nothing new is begun; None: no deadline.
    """

    cost: float = float("inf")
    recompute: int | None = None
    floor: int = 0
    tries: int = 20_000
    deadline: float | None = None


class Descent:
    """A search on one step."""

    def __init__(self, accountant: Accountant, limits: Limits) -> None:
        self.accountant, self.limits = accountant, limits
        self.mover = Mover(accountant)
        self.unit = accountant.total_cost or 1.0
        self.tries = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to spend."""
        deadline = self.limits.deadline
        return self.tries >= self.limits.tries or (deadline is not None and perf_counter() > deadline)

    def lower(self, start: Account, pace: float = 0.04, report: Callable[[Account], None] | None = None) -> Account:
        """The lowest that one descent from `start` comes to, within the limits or not if `start` is not.

        Args:
            pace: how far below the last peak each round aims at first, as a fraction. Where a descent ends depends
                on its pace and start, and hardly on anything else: several cost little and help.
            report: called with each plan that is lower than those before.
        """
        best = self.trim(start, start.peak)
        shrink = pace
        while shrink > 0.001 and not self.is_over and best.peak > self.limits.floor:
            aim = max(int(best.peak * (1 - shrink)), self.limits.floor)
            found = self._round(best, aim)
            if found is None:
                shrink /= 2
                continue
            best = found
            if report is not None:
                report(best)
        return best

    def _round(self, best: Account, aim: int) -> Account | None:
        found = self.squeeze(best, aim, 1.3 * self.limits.cost)
        if found is None:
            return None
        found = self.trim(found, found.peak)
        return found if self.is_allowed(found) else None

    def read(self, row: Row) -> Account:
        """The account of a row, without what nothing needs in it."""
        self.tries += 1
        a = self.accountant.account(row)
        return self.accountant.account(self.accountant.without_idle(row)) if a.has_idle else a

    def is_allowed(self, a: Account) -> bool:
        """Whether a plan keeps to the limits of cost and of runs."""
        return a.cost <= self.limits.cost and self._runs_few(a.row)

    def _runs_few(self, row: Row) -> bool:
        most = self.limits.recompute
        return most is None or len(row.ops) == 0 or int(np.bincount(row.ops).max()) <= most

    # -- down -----------------------------------------------------------------------------------------------------

    def squeeze(self, a: Account, aim: int, most_cost: float) -> Account | None:
        """Moves until the peak is at most `aim`; None if they do not get there for `most_cost`."""
        self.mover.room = aim
        excess = _excess(a, aim)
        while excess > 0:
            found = None
            for place in _tops(a, aim):
                found = self._best_change(a, place, aim, excess, most_cost)
                if found is not None:
                    break
            if found is None:
                return None
            a, excess = found, _excess(found, aim)
        return a

    def _best_change(self, a: Account, place: int, aim: int, excess: int, most_cost: float) -> Account | None:
        best, found = 0.0, None
        for row in self._changes(a, place):
            if self.is_over:
                return None
            b = self.read(row)
            if not self._runs_few(b.row):
                continue
            less = excess - _excess(b, aim)
            if less <= 0 or b.cost > most_cost:
                continue
            runs = max(0, len(b.row.ops) - len(a.row.ops))
            gain = less / (max(0.0, b.cost - a.cost) / self.unit + 1e-4 + 1e-6 * runs)
            if gain > best:
                best, found = gain, b
        return found

    def _changes(self, a: Account, place: int) -> Iterator[Row]:
        for w in self.mover.waiting(a, place)[:12]:
            if self.accountant.size[w.value] * 1000 < a.level[place]:
                break
            for cheap_again in (False, True):
                row = self.mover.drop(a, w, place, cheap_again)
                if row is not None:
                    yield row
        k = int(np.searchsorted(a.run_place, place))
        if k < len(a.run_place) and a.run_place[k] == place:
            row = self.mover.hold(a, k)
            if row is not None:
                yield row

    # -- less work ------------------------------------------------------------------------------------------------

    def trim(self, a: Account, room: int, all_runs: bool = False) -> Account:
        """Leave out runs while the peak stays within `room`: dear ones first, and with `all_runs` those, too, that
        cost nothing."""
        self.mover.room = room
        cost = np.unique(self.accountant.cost[a.row.ops])
        cost = cost[cost > 0]
        if len(cost):
            for least in (float(np.median(cost)), float(cost[0])):
                a = self._trim(a, room, least)
        return self._trim(a, room, 0.0) if all_runs else a

    def _trim(self, a: Account, room: int, least: float) -> Account:
        again = True
        while again:
            again = False
            k = len(a.row.ops) - 1
            while k >= 0 and not self.is_over:
                row = self.mover.hold(a, k) if self.accountant.cost[a.row.ops[k]] >= least else None
                if row is not None:
                    b = self.read(row)
                    if b.peak <= room and b.cost <= a.cost and len(b.row.ops) < len(a.row.ops):
                        after = len(a.row.ops) - 1 - k
                        a, again = b, True
                        k = len(b.row.ops) - after
                k -= 1
        return a


def _excess(a: Account, aim: int) -> int:
    """Bytes above `aim`, summed over places."""
    return int(np.maximum(a.level - aim, 0).sum())


def _tops(a: Account, aim: int, most: int = 6) -> list[int]:
    """Places above `aim` to try moves at: the first of each level, highest first."""
    over = np.flatnonzero(a.level > aim)
    level, first = np.unique(-a.level[over], return_index=True)
    return over[first[np.argsort(level)]][:most].tolist()
