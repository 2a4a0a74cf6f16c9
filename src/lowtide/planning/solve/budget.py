"""budget: least added time with the simulated peak under a budget, and least peak with the added time under a limit.

Three stages, each judged by the simulator's count:

1. `Stretches` gives choices for all budgets at once: rotor's recursion on op-level frontiers, with regimes from the
   corners of the market (`prices`) inside of stretches.
2. Those that are quick but a little too large are squeezed: single values are given up, least time per byte first.
3. The best that fits is improved: single values are kept or held where there is room, or exchanged for others; last,
   single runs are left out whose results there is room for just then (`descent`).

A lower bound on the time of all plans under the budget comes from the market, so that the gap is known. What was found
for one budget is a candidate for all others that are asked of the same `Ground`: there more budget never costs more
time than what was found with less before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from lowtide.planning.account import Account, Accountant, Row
from lowtide.planning.bound import bound
from lowtide.planning.cost import roofline
from lowtide.planning.descent import Descent, Limits
from lowtide.planning.frontiers import Frontiers
from lowtide.planning.gauge import Gauge, Reading
from lowtide.planning.holding import holding_bound
from lowtide.planning.lazy import Choice, Lazy, Lists
from lowtide.planning.prices import Corner, Market
from lowtide.planning.progress import Progress, silent
from lowtide.planning.refine import Refiner, is_better
from lowtide.planning.simulate import simulate
from lowtide.planning.solve.frontier import frontier
from lowtide.planning.step import Step
from lowtide.planning.stretches import Stretches, pairs
from lowtide.units import format_bytes, format_percent, format_seconds

# Steps that come without costs are planned for this device.
DEFAULT_DEVICE = "a100"

# A reading takes some 3 us per forward op, so that the refinement of a budget takes some seconds.
_READINGS = 1_000_000


@dataclass(frozen=True)
class Found:
    """A plan for a budget, or for a limit on added time.

    Attributes:
        keep, runs: its lists.
        peak_bytes, added_s: what the simulator says of it.
        slowdown: `added_s` as a fraction of the step's seconds.
        budget: bytes above the start of the step that the peak was to keep to, or None.
        least_bytes: no plan at all has a lower peak.
        least_s: no plan within the budget adds fewer seconds; infinite if none can be within it.
    """

    keep: frozenset[int]
    runs: Mapping[int, tuple[int, ...]]
    peak_bytes: int
    added_s: float
    slowdown: float
    budget: int | None
    least_bytes: int
    least_s: float

    @property
    def fits(self) -> bool:
        return self.budget is None or self.peak_bytes <= self.budget

    @property
    def status(self) -> str:
        """One sentence for people: optimal, feasible with gap, or infeasible and what would help."""
        if not self.fits:
            assert self.budget is not None
            if self.least_bytes > self.budget:
                why = f"no plan can be below {format_bytes(self.least_bytes)}"
            else:
                why = f"the least peak found is {format_bytes(self.peak_bytes)}"
            return (
                f"infeasible: {why}, the budget leaves {format_bytes(self.budget)} for the step; "
                "raise it, or make the batch smaller"
            )
        if self.budget is None:
            if self.peak_bytes <= self.least_bytes:
                return "least peak there is, proven: it is the lower bound of all plans"
            gap = format_percent(self.peak_bytes / self.least_bytes - 1) if self.least_bytes else "more"
            return f"a plan that was searched for, at most {gap} above the least peak there is"
        if self.added_s <= self.least_s * (1 + 1e-9) + 1e-15:
            return "least added time of all plans within the budget, proven"
        return (
            f"feasible; any plan within the budget adds at least {format_seconds(self.least_s)}, "
            f"this one {format_seconds(self.added_s - self.least_s)} more"
        )


class Ground:
    """What is worked out once per step, whatever the budget.

    Attributes:
        step: with seconds; a step without any gets those of `DEFAULT_DEVICE`.
        baseline_bytes: peak without a plan.
        pool: every choice that was read so far.
        plans: what was made of choices by leaving out single runs.
        slots: into how many units the program divides the memory.
    """

    def __init__(self, step: Step, progress: Progress | None = None, slots: int = 800) -> None:
        self.slots = slots
        self.step = step if step.seconds else roofline(step, DEFAULT_DEVICE)
        self.fronts = Frontiers(self.step)
        self.lazy = Lazy(self.fronts)
        self.gauge = Gauge(self.lazy)
        self.baseline_bytes = simulate(self.step).peak_bytes
        self.least_bytes = bound(self.step).bytes
        self.accountant = Accountant(self.fronts)
        self.pool: dict[Choice, Reading] = {}
        self.plans: list[tuple[Reading, Lists]] = []
        self._slots: dict[int, Choice | None] = {}
        self.add(self.lazy.keep_all())
        self.has_choice = any(not (f.always or f.free) for f in self.fronts.facts.values())
        self.tries = max(100, min(8000, _READINGS // max(1, self.fronts.n)))
        self.corners: list[Corner] = []
        if self.has_choice:
            self._prepare(progress or silent)

    def _prepare(self, report: Progress) -> None:
        self.market = Market(self.fronts)
        self.corners = self.market.corners()
        for corner in self.corners:
            self.add(Choice(corner.keep, frozenset()))
        kept, _ = frontier(self.step, lambda x: report(0.3 * x))
        self.add(Choice(kept, frozenset()))
        self.stretches = Stretches(
            self.fronts, pairs(self.corners), self.baseline_bytes, self.slots, progress=lambda x: report(0.3 + 0.7 * x)
        )

    def add(self, choice: Choice) -> Reading:
        """Read a candidate."""
        if choice not in self.pool:
            self.pool[choice] = self.gauge.read(choice)
        return self.pool[choice]

    def read_slots(self, low: float, high: float, count: int) -> None:
        """Read some `count` of the program's choices for budgets from `low` to `high` bytes."""
        if not self.has_choice:
            return
        s = self.stretches
        first, last = max(0, int(low / s.unit)), min(s.width - 1, int(high / s.unit))
        every = max(1, (last - first) // max(1, count))
        for k in range(last, first - 1, -every):
            # Far below what is possible the program promises plans of endless runs.
            if k not in self._slots and s.best[0, k] < 4 * self.step.total_seconds:
                self._slots[k] = s.choice(k)
                choice = self._slots[k]
                if choice is not None:
                    self.add(choice)

    # -- a budget -----------------------------------------------------------------------------------------------

    def solve(self, budget: int, progress: Progress | None = None, tries: int | None = None) -> Found:
        """The plan of least added time whose peak is at most `budget` bytes above the start of the step; the least
        peak that was found if none fits.

        Args:
            tries: how many choices to read in search of better ones; None for a number that takes some seconds.
        """
        report = progress or silent
        if budget < self.least_bytes:
            return replace(self.least_peak(1.0, progress), budget=budget)
        self.read_slots(0.97 * budget, 1.02 * budget, 24)
        self.read_slots(0.9 * budget, 1.25 * budget, 40)
        best = self._best_under(budget)
        if best is None:
            self.read_slots(0, budget, 60)
            best = self._best_under(budget)
        report(0.3)
        most = self.tries if tries is None else tries
        if best is None or self.pool[best].added_s > 0:
            best = self._refined(budget, best, most, report)
            self._trim(budget, most)
        report(1.0)
        return self._answer(budget)

    def _refined(self, budget: int, best: Choice | None, tries: int, report: Progress) -> Choice:
        best = self._squeezed(budget, best, tries // 4)
        report(0.5)
        reading = self.pool[best]
        refiner = Refiner(self.gauge, budget, tries // 4)
        if refiner.fits(reading):
            reading, best = refiner.improve(reading, best)
        report(0.7)
        for heat in (0.1, 0.01) if self.fronts.n <= 64 else (0.01,):
            refiner.tries = tries // 2
            reading, best = refiner.anneal(reading, best, heat=heat)
        report(0.9)
        self.pool[best] = reading
        return best

    def _trim(self, budget: int, tries: int) -> None:
        """Leave out single runs of the best choices; if none fits, bring the lowest down by moves of any kind."""
        fitting = [c for c, r in self.pool.items() if r.peak_bytes <= budget]
        fitting.sort(key=lambda c: (self.pool[c].added_s, self.pool[c].peak_bytes))
        for choice in fitting[:6]:
            descent = Descent(self.accountant, Limits(tries=tries))
            self._keep(descent.trim(descent.read(self._row(choice)), budget, all_runs=True))
        if fitting:
            return
        lowest = sorted(self.pool, key=lambda c: (self.pool[c].peak_bytes, self.pool[c].added_s))
        for choice in lowest[:2]:
            descent = Descent(self.accountant, Limits(floor=budget, tries=tries))
            account = descent.lower(descent.read(self._row(choice)))
            self._keep(account)
            if account.peak <= budget:
                return

    def _row(self, choice: Choice) -> Row:
        return Row.of(len(self.step.values), self.lazy.lists(choice))

    def _keep(self, account: Account) -> None:
        seconds = self.step.seconds
        ops: list[int] = account.row.ops.tolist()
        added_s = sum(seconds[o] for o in ops)
        self.plans.append((Reading(account.peak, added_s), account.row.lists()))

    def _answer(self, budget: int) -> Found:
        """The best of all choices and plans for a budget; the lowest if none fits."""

        def worth(r: Reading) -> tuple[int, float, int]:
            return max(0, r.peak_bytes - budget), r.added_s, r.peak_bytes

        choice = min(self.pool, key=lambda c: worth(self.pool[c]))
        plan = min(self.plans, key=lambda p: worth(p[0]), default=None)
        if plan is not None and worth(plan[0]) < worth(self.pool[choice]):
            return self.found(plan[1], budget)
        return self.found(self.lazy.lists(choice), budget)

    def _best_under(self, budget: int) -> Choice | None:
        fitting = [c for c, r in self.pool.items() if r.peak_bytes <= budget]
        return min(fitting, key=lambda c: (self.pool[c].added_s, self.pool[c].peak_bytes), default=None)

    def _squeezed(self, budget: int, best: Choice | None, tries: int) -> Choice:
        """The best of `best` and what comes of those that are larger and quicker; the least peak if nothing fits."""
        pool = self.pool
        limit = inf if best is None else pool[best].added_s
        near = [c for c, r in pool.items() if r.peak_bytes > budget and r.added_s < limit]
        near.sort(key=lambda c: (pool[c].peak_bytes, pool[c].added_s))
        refiner = Refiner(self.gauge, budget, tries)
        for candidate in near[:12]:
            if refiner.is_over:
                break
            limit = inf if best is None else pool[best].added_s
            if pool[candidate].added_s >= limit:
                continue
            reading, choice = refiner.squeeze(candidate, limit)
            pool[choice] = reading
            if refiner.fits(reading) and (best is None or is_better(reading, pool[best])):
                best = choice
        if best is not None:
            return best
        return min(pool, key=lambda c: (pool[c].peak_bytes, pool[c].added_s))

    # -- a limit on time ----------------------------------------------------------------------------------------

    def least_peak(self, max_slowdown: float, progress: Progress | None = None) -> Found:
        """The plan of least peak that makes the step at most `max_slowdown` slower: 0.2 is 20 % more time."""
        report = progress or silent
        limit = max_slowdown * self.step.total_seconds * (1 + 1e-12)
        self.read_slots(0, self.baseline_bytes, 100)
        lowest = self.pool[self._near(limit)[0]].peak_bytes
        self.read_slots(0.85 * lowest, 1.05 * lowest, 60)
        report(0.4)
        starts = self._near(limit)[:4]
        for k, choice in enumerate(starts):
            descent = Descent(self.accountant, Limits(cost=limit, floor=self.least_bytes, tries=self.tries))
            account = descent.read(self._row(choice))
            account = descent.trim(account, account.peak)
            if descent.is_allowed(account):
                self._keep(descent.lower(account))
            report(0.4 + 0.6 * (k + 1) / len(starts))
        within = [(r.peak_bytes, r.added_s, lists) for r, lists in self.plans if r.added_s <= limit]
        plan = min(within, key=lambda x: x[:2], default=None)
        choice = min((c for c, r in self.pool.items() if r.added_s <= limit), key=lambda c: self.pool[c])
        if plan is not None and plan[:2] < self.pool[choice]:
            return self.found(plan[2], None)
        return self.found(self.lazy.lists(choice), None)

    def _near(self, limit_s: float) -> list[Choice]:
        """Choices within the limit, or a little above, where leaving out runs may bring them; lowest peak first."""
        some = [c for c, r in self.pool.items() if r.added_s <= 1.15 * limit_s]
        return sorted(some, key=lambda c: self.pool[c])

    # -- the answer ---------------------------------------------------------------------------------------------

    def least_s(self, budget: int) -> float:
        """No plan whose peak is at most `budget` adds fewer seconds."""
        if budget >= self.baseline_bytes:
            return 0.0
        if budget < self.least_bytes or not self.has_choice:
            return inf
        return self.market.least_added_s(self.corners, budget)

    def found(self, lists: Lists, budget: int | None) -> Found:
        """The answer that a plan is, with the simulator's figures."""
        keep, runs = lists
        timeline = simulate(self.step, lists)
        least_s = self.least_s(timeline.peak_bytes if budget is None else budget)
        total = self.step.total_seconds
        fits = budget is not None and timeline.peak_bytes <= budget
        return Found(
            keep=keep,
            runs=runs,
            peak_bytes=timeline.peak_bytes,
            added_s=timeline.added_s,
            slowdown=timeline.added_s / total if total else 0.0,
            budget=budget,
            least_bytes=self.least_bytes if fits else holding_bound(self.step, timeline.peak_bytes).bytes,
            least_s=least_s,
        )


def least_time(step: Step, budget: int, progress: Progress | None = None) -> Found:
    """The plan of least added time with a peak of at most `budget` bytes above the start of the step."""
    report = progress or silent
    return Ground(step, lambda x: report(0.5 * x)).solve(budget, lambda x: report(0.5 + 0.5 * x))


def least_peak(step: Step, max_slowdown: float, progress: Progress | None = None) -> Found:
    """The plan of least peak with at most `max_slowdown` (a fraction of the step's seconds) of added time."""
    report = progress or silent
    return Ground(step, lambda x: report(0.5 * x)).least_peak(max_slowdown, lambda x: report(0.5 + 0.5 * x))
