"""deep: the least peak that can be found within a limit on added work, any op run again any number of times.

It starts from the best cuts of the thesis' class (`frontier`), with runs put off until something wants them (`lazy`),
and goes down from there by single-value moves (`descent`), some times over at different paces. FLOPs count as added
work, or seconds where the step has costs; without seconds, ops without FLOPs are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter

from lowtide.planning.account import Account, Accountant, Row
from lowtide.planning.bound import bound
from lowtide.planning.descent import Descent, Limits
from lowtide.planning.frontiers import Frontiers
from lowtide.planning.holding import holding_bound
from lowtide.planning.lazy import Choice, Lazy
from lowtide.planning.progress import Progress, silent
from lowtide.planning.simulate import keep_all, simulate
from lowtide.planning.solve.frontier import Found as Cuts
from lowtide.planning.solve.frontier import search as search_cuts
from lowtide.planning.step import Step
from lowtide.units import format_percent

Lists = tuple[frozenset[int], Mapping[int, tuple[int, ...]]]

_SMALL = 64  # ops of forward


@dataclass(frozen=True)
class Found:
    """What the search found.

    Attributes:
        keep, runs: the plan's lists.
        peak_bytes: its simulated peak.
        least_bytes: no plan of any kind has a lower one.
        added: its added work as a fraction of the plain step's.
        tries: how many plans were counted.
    """

    keep: frozenset[int]
    runs: Mapping[int, tuple[int, ...]]
    peak_bytes: int
    least_bytes: int
    added: float
    tries: int

    @property
    def status(self) -> str:
        """One sentence for people."""
        if self.peak_bytes <= self.least_bytes:
            return "least peak there is, proven: it is the lower bound of all plans"
        gap = format_percent(self.peak_bytes / self.least_bytes - 1) if self.least_bytes else "more"
        return f"a plan that was searched for, at most {gap} above the least peak there is"


def deep(
    step: Step,
    max_slowdown: float | None = 0.34,
    max_recompute: int | None = None,
    progress: Progress | None = None,
    tries: int = 20_000,
    seconds: float | None = 100.0,
) -> Found:
    """The least peak found within the limits; never above the peak without a plan.

    Args:
        max_slowdown: added work allowed, as a fraction of the plain step's. None: no limit.
        max_recompute: how often any op may run again. None: no limit.
        progress: called with a fraction in [0, 1] now and then.
        tries: plans that may be counted; it bounds the work and keeps the result the same on every machine.
        seconds: time after which the search ends with the best so far. None: no limit.
    """
    report = progress or silent
    deadline = None if seconds is None else perf_counter() + seconds
    floor = bound(step).bytes
    baseline = simulate(step).peak_bytes
    fronts = Frontiers(step)
    if fronts.n == 0 or not fronts.facts or baseline <= floor:
        return Found(keep_all(step), {}, baseline, floor, 0.0, 0)
    cuts = search_cuts(step, lambda x: report(0.3 * x))
    accountant = Accountant(fronts)
    unit = accountant.total_cost
    limits = Limits(
        cost=float("inf") if max_slowdown is None else max_slowdown * unit,
        recompute=max_recompute,
        floor=floor,
        tries=tries,
        deadline=deadline,
    )
    descent = Descent(accountant, limits)
    best = accountant.account(Row.of(len(step.values), (keep_all(step), {})))
    highest = best.peak

    def better(a: Account) -> None:
        nonlocal best
        if descent.is_allowed(a) and (a.peak, a.cost) < (best.peak, best.cost):
            best = a
        report(0.3 + 0.7 * (highest - best.peak) / max(1, highest - floor))

    for start, pace in _starts(fronts, descent, cuts):
        better(start)
        better(descent.lower(start, pace, better))
        if descent.is_over or best.peak <= floor:
            break
    if fronts.n <= _SMALL and best.peak > floor:
        _climb(descent, _nothing_held(fronts, descent), floor, best.peak, better)
    best = descent.trim(best, best.peak, all_runs=True)
    report(1.0)
    return _found(step, best, baseline, unit, descent.tries)


def _starts(fronts: Frontiers, descent: Descent, cuts: Cuts) -> Iterator[tuple[Account, float]]:
    """Where descents start, and how fast they go: the most promising first."""
    n, lazy = len(fronts.step.values), Lazy(fronts)
    put_off = descent.read(Row.of(n, lazy.lists(Choice(cuts.keep, frozenset()))))
    for pace in (0.04, 0.01, 0.02):
        yield put_off, pace
    yield descent.read(Row.of(n, (cuts.keep, cuts.runs))), 0.04
    if not descent.is_allowed(put_off):  # too much work: from above, where there is none
        yield descent.read(Row.of(n, (keep_all(fronts.step), {}))), 0.04
    if fronts.n <= _SMALL:
        yield _nothing_held(fronts, descent), 0.04
        yield descent.read(Row.of(n, lazy.lists(Choice(frozenset(), frozenset())))), 0.04


def _nothing_held(fronts: Frontiers, descent: Descent) -> Account:
    """Nothing is kept, and what is made again goes at once: little memory, and work that grows with the square of the
    length."""
    lists = Lazy(fronts).lists(Choice(frozenset(), frozenset(fronts.facts)))
    return descent.read(Row.of(len(fronts.step.values), lists))


def _climb(descent: Descent, start: Account, low: int, high: int, better: Callable[[Account], None]) -> None:
    """From a plan of much work up: the least room in which holding values brings the work within the limits, by
    bisection."""
    low, high = max(low, start.peak), high - 1
    while low <= high and not descent.is_over:
        room = (low + high) // 2
        a = descent.trim(start, room)
        if descent.is_allowed(a):
            better(a)
            high = a.peak - 1
        else:
            low = room + 1


def _found(step: Step, a: Account, baseline: int, unit: float, tries: int) -> Found:
    keep, runs = a.row.lists()
    peak = simulate(step, (keep, runs)).peak_bytes
    floor = holding_bound(step, min(peak, baseline)).bytes
    if peak >= baseline:
        return Found(keep_all(step), {}, baseline, floor, 0.0, tries)
    return Found(keep, runs, peak, floor, a.cost / unit if unit else 0.0, tries)
