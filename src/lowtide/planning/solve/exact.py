"""exact: the least peak of a small step by constraint programming (CP-SAT of OR-tools), to measure searches by.

In the spirit of Moccasin (Bartan et al. 2023, arXiv:2304.14463): each op may run again up to r times, and each run
holds what it wrote over an interval. The axis has a slot for every moment and, before each unpack, one for every
forward op, so that a run's slot says before which unpack it runs, and runs before one unpack stand in the order of
ops. Every read and every unpack must lie in an interval of its value, or the value is kept; bytes add up to at most
the peak at every slot (one cumulative constraint), and the peak is made least.

The class is narrower than that of all plans in one way: no op runs twice before the same unpack.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from lowtide.errors import InputError
from lowtide.planning.bound import bound
from lowtide.planning.check import check
from lowtide.planning.frontiers import Frontiers
from lowtide.planning.schedule import handed_until
from lowtide.planning.simulate import simulate
from lowtide.planning.solve.deep import Found, Lists, deep
from lowtide.planning.step import Step


@dataclass(frozen=True)
class Proof:
    """What the program found.

    Attributes:
        found: the better of its plan and that of `deep`.
        least_bytes: no plan of the class has a lower peak.
    """

    found: Found
    least_bytes: int

    @property
    def is_optimal(self) -> bool:
        """Whether no plan of the class is better."""
        return self.found.peak_bytes <= self.least_bytes


def exact(
    step: Step, runs: int = 2, max_slowdown: float | None = None, seconds: float = 60.0, workers: int = 2
) -> Proof:
    """The least peak if any op runs again at most `runs` times.

    Args:
        max_slowdown: added FLOPs allowed, as a fraction of the plain step's. None: no limit.
        seconds: time for the solver; then it answers with the best so far and a weaker bound.
        workers: its threads.

    Raises:
        InputError: if OR-tools is not installed.
    """
    floor = bound(step).bytes
    start = deep(step, max_slowdown, runs)
    if start.peak_bytes <= floor:
        return Proof(start, floor)
    program = Program(Frontiers(step), runs, start.peak_bytes)
    if max_slowdown is not None:
        program.limit_flops(max_slowdown * step.total_flops)
    least, lists = program.solve(floor, seconds, workers)
    if lists is not None and not check(step, *lists):
        timeline = simulate(step, lists)
        if timeline.peak_bytes < start.peak_bytes:
            added = timeline.recompute_flops / step.total_flops if step.total_flops else 0.0
            keep, again = lists
            start = Found(keep, again, timeline.peak_bytes, floor, added, start.tries)
    return Proof(start, min(least, start.peak_bytes))


class Program:
    """The constraint program of one step."""

    def __init__(self, fronts: Frontiers, runs: int, most_bytes: int) -> None:
        try:
            self.cp: Any = import_module("ortools.sat.python.cp_model")
        except ImportError:
            raise InputError("solver 'exact' needs OR-tools: pip install 'lowtide[exact]'") from None
        self.model: Any = self.cp.CpModel()
        self.fronts, self.step, self.most_runs = fronts, fronts.step, runs
        self._axis()
        self.peak: Any = self.model.new_int_var(0, most_bytes, "peak")
        self.intervals: list[Any] = []
        self.demands: list[int] = []
        self.flops: list[Any] = []
        self.active: dict[int, list[Any]] = {}  # per op: is its k-th run there
        self.slot: dict[int, list[Any]] = {}  # per op: where
        self.end: dict[int, list[Any]] = {}  # per value: where its k-th stay is over
        self.keep: dict[int, Any] = {}
        self.kept_end: dict[int, Any] = {}
        self._natural()
        for o in range(fronts.n):
            if fronts.relevant[o]:
                self._runs_of(o)
        for v in fronts.facts:
            self._keeping(v)
        for o in self.active:
            for r in dict.fromkeys(self.step.ops[o].reads):
                if not self.step.is_external(r):
                    self._read(o, r)
        for v in fronts.facts:
            self._asked(v)
        self.model.add_cumulative(self.intervals, self.demands, self.peak)

    def _axis(self) -> None:
        """Slots: `first[m]` to `first[m + 1]` belong to moment m; the last of them is the moment itself."""
        n, self.first = self.fronts.n, [0]
        self.unpacks = [m for m, what in enumerate(self.step.moments) if what < 0]
        for what in self.step.moments:
            self.first.append(self.first[-1] + (n + 1 if what < 0 else 1))

    def _hold(self, start: Any, end: Any, present: Any, nbytes: int) -> None:
        size = self.model.new_int_var(0, self.first[-1], "")
        self.intervals.append(self.model.new_optional_interval_var(start, size, end, present, ""))
        self.demands.append(nbytes)

    def _natural(self) -> None:
        base, m = self.step.base_bytes, 0
        while m < len(base):
            end = m + 1
            while end < len(base) and base[end] == base[m]:
                end += 1
            if base[m]:
                length = self.first[end] - self.first[m]
                self.intervals.append(self.model.new_fixed_size_interval_var(self.first[m], length, ""))
                self.demands.append(base[m])
            m = end

    def _runs_of(self, o: int) -> None:
        model, horizon = self.model, self.first[-1]
        writes = [w for w in self.step.ops[o].writes if not self.step.is_external(w)]
        slots = self.cp.Domain.from_values([self.first[m] + o for m in self.unpacks])
        self.active[o], self.slot[o] = [], []
        for w in writes:
            self.end[w] = []
        for k in range(self.most_runs):
            active, slot = model.new_bool_var(f"run {o}.{k}"), model.new_int_var_from_domain(slots, f"slot {o}.{k}")
            if k:
                model.add_implication(active, self.active[o][-1])
                model.add(slot > self.slot[o][-1]).only_enforce_if(active)
            if self.fronts.stuck[o]:
                model.add(active == 0)
            self.active[o].append(active)
            self.slot[o].append(slot)
            self.flops.append(self.step.ops[o].flops * active)
            for w in writes:
                end = model.new_int_var(0, horizon, f"end {w}.{k}")
                model.add(end >= slot + 1).only_enforce_if(active)
                self.end[w].append(end)
                self._hold(slot, end, active, self.step.nbytes(w))
            scratch = self.step.replay_scratch_bytes(o)
            if scratch:
                self.intervals.append(model.new_optional_fixed_size_interval_var(slot, 1, active, ""))
                self.demands.append(scratch)

    def _keeping(self, v: int) -> None:
        step, f = self.step, self.fronts.facts[v]
        keep = self.keep[v] = self.model.new_bool_var(f"keep {v}")
        if f.always or f.free:
            self.model.add(keep == 1)
        elif step.values[v].overwritten >= 0:
            self.model.add(keep == 0)
        end = self.kept_end[v] = self.model.new_int_var(0, self.first[-1], f"kept until {v}")
        start = self.first[min(max(f.death, step.ops[f.born].moment), step.n_moments)]
        self.model.add(end >= max(start, self.first[min(f.kept_until, step.n_moments)]))
        if not step.storages[step.values[v].storage].external:
            self._hold(start, end, keep, f.nbytes)

    def _covered(self, v: int, at: Any, until: Any, when: Any) -> None:
        """Slot `at` finds value v in memory, and it is held up to `until`, if `when` is."""
        ways: list[Any] = []
        if v in self.keep:
            ways.append(self.keep[v])
            self.model.add(self.kept_end[v] >= until).only_enforce_if([self.keep[v], when])
        maker = self.step.values[v].op
        for k, active in enumerate(self.active.get(maker, ())):
            way = self.model.new_bool_var("")
            self.model.add_implication(way, active)
            self.model.add(self.slot[maker][k] < at).only_enforce_if(way)
            self.model.add(self.end[v][k] >= until).only_enforce_if(way)
            ways.append(way)
        self.model.add_bool_or(ways).only_enforce_if(when)

    def _read(self, o: int, v: int) -> None:
        taken = any(old == v for old, _ in self.step.ops[o].inplace)
        for active, slot in zip(self.active[o], self.slot[o], strict=True):
            self._covered(v, slot, slot if taken else slot + 1, active)

    def _asked(self, v: int) -> None:
        for s in self.step.saves_of.get(v, ()):
            for k, m in enumerate(self.step.saves[s].uses):
                until = min(handed_until(self.step, s, k), self.step.n_moments)
                at = self.first[m + 1] - 1
                self._covered(v, at, max(self.first[until], at + 1), self.keep[v].negated())

    def limit_flops(self, most: float) -> None:
        self.model.add(sum(self.flops) <= int(most))

    def solve(self, floor: int, seconds: float, workers: int) -> tuple[int, Lists | None]:
        """A lower bound of the class, and a plan's lists if one was found."""
        self.model.add(self.peak >= floor)
        self.model.minimize(self.peak)
        solver = self.cp.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = workers
        solver.parameters.random_seed = 0
        status = solver.solve(self.model)
        if status not in (self.cp.OPTIMAL, self.cp.FEASIBLE):
            return floor, None
        keep = frozenset(v for v, k in self.keep.items() if solver.value(k))
        placed: list[tuple[int, int]] = []
        for o, active in self.active.items():
            placed += [(solver.value(self.slot[o][k]), o) for k, a in enumerate(active) if solver.value(a)]
        at = {self.first[m] + o: m for m in self.unpacks for o in range(self.fronts.n)}
        lists: dict[int, tuple[int, ...]] = {}
        for slot, o in sorted(placed):
            lists[at[slot]] = (*lists.get(at[slot], ()), o)
        return int(solver.best_objective_bound + 0.5), (keep, lists)
