"""Small steps with seconds, choices about them, and all their choices, for tests of plans under a budget."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

from lowtide.planning.frontiers import Frontiers
from lowtide.planning.gauge import Gauge, Reading
from lowtide.planning.lazy import Choice, Lazy
from lowtide.planning.step import Step
from tests.random_steps import random_step


def costed(seed: int, n_ops: int = 8, odd: bool = True) -> Step:
    """A random step whose ops take whole seconds."""
    rng = random.Random(seed)
    step = random_step(seed, n_ops, odd)
    return replace(step, seconds=tuple(float(rng.choice([1, 1, 2, 5, 10])) for _ in step.ops))


def gauge_of(step: Step) -> Gauge:
    return Gauge(Lazy(Frontiers(step)))


def choosable(lazy: Lazy) -> list[int]:
    """Values that are not kept in every plan."""
    return [v for v in lazy.fronts.facts if v not in lazy.must]


def random_choice(lazy: Lazy, rng: random.Random) -> Choice:
    p_keep, p_again = rng.random(), rng.random()
    keep = frozenset(v for v in lazy.free if rng.random() < p_keep)
    return Choice(keep, frozenset(v for v in choosable(lazy) if v not in keep and rng.random() < p_again))


def front_of_all(gauge: Gauge) -> list[Reading]:
    """The best of all choices: peaks rise, times fall. 3 to the power of the number of values readings."""
    values, keepable = choosable(gauge.lazy), set(gauge.lazy.free)
    readings: list[Reading] = []
    for fates in itertools.product(*[(0, 1, 2) if v in keepable else (1, 2) for v in values]):
        keep = frozenset(v for v, f in zip(values, fates, strict=True) if f == 0)
        readings.append(gauge.read(Choice(keep, frozenset(v for v, f in zip(values, fates, strict=True) if f == 2))))
    front: list[Reading] = []
    for r in sorted(readings):
        if not front or r.added_s < front[-1].added_s:
            front.append(r)
    return front


def exact_s(step: Step, budget: int, runs: int, seconds: float) -> float | None:
    """The least added time in which any op runs again at most `runs` times, by CP-SAT; None without proof."""
    from lowtide.planning.solve.exact import Program

    program = Program(Frontiers(step), runs, budget)
    terms = [int(step.seconds[o]) * a for o, active in program.active.items() for a in active]
    program.model.minimize(sum(terms))
    solver = program.cp.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 2
    solver.parameters.random_seed = 0
    return solver.objective_value if solver.solve(program.model) == program.cp.OPTIMAL else None
