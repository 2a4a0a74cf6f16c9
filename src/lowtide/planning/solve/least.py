"""least: what is planned unless one says otherwise. Least peak within a limit on added work, and of that, least work.

Two searches look for the least peak, `deep` and `budget`: neither is always the better one. Where `budget` is no worse,
its search for the least added time under that very peak follows: on VGG-16, where all meet the bound, it leaves a
fraction of the added FLOPs (`make bench-ogc`, columns `default` and `with codes`).
"""

from __future__ import annotations

from collections.abc import Mapping

from lowtide.errors import InputError
from lowtide.planning.progress import Progress, silent
from lowtide.planning.solve.budget import Ground
from lowtide.planning.solve.deep import deep
from lowtide.planning.solve.solution import Solution, Status, of_lists
from lowtide.planning.step import Step

Lists = tuple[frozenset[int], Mapping[int, tuple[int, ...]]]

# Forward ops from which on `deep` alone is worth its time.
_LARGE = 2000


def least(step: Step, max_slowdown: float, progress: Progress | None = None) -> Solution:
    """The plan of least peak that any of the searches finds within the limit; among equals, the one of least work.

    Args:
        max_slowdown: added work allowed, as a fraction of the plain step's seconds; of its FLOPs if it has no costs.
        progress: called with a fraction in [0, 1].

    Raises:
        InputError: if the limit is negative.
    """
    if not max_slowdown >= 0:
        raise InputError(f"max_slowdown must be at least 0, not {max_slowdown!r}")
    report = progress or silent
    first = deep(step, max_slowdown, progress=lambda x: report(0.4 * x))
    found: list[tuple[int, float, str, Lists, str]] = []

    def add(name: str, peak_bytes: int, lists: Lists, said: str) -> None:
        work = _work(step, lists)
        if work <= max_slowdown * (1 + 1e-9) or name == "deep":
            found.append((peak_bytes, work, name, lists, said))

    add("deep", first.peak_bytes, (first.keep, first.runs), first.status)
    if first.runs and step.n_forward <= _LARGE:
        ground = Ground(step, lambda x: report(0.4 + 0.3 * x))
        low = ground.least_peak(max_slowdown, lambda x: report(0.7 + 0.1 * x))
        add("budget", low.peak_bytes, (low.keep, low.runs), low.status)
        if low.peak_bytes <= first.peak_bytes:
            quick = ground.solve(low.peak_bytes, lambda x: report(0.8 + 0.2 * x), tries=ground.tries // 4)
            add("budget", quick.peak_bytes, (quick.keep, quick.runs), low.status)
    peak, _, name, lists, said = min(found, key=lambda x: x[:2])
    report(1.0)
    status = Status.LEAST_OF_ALL if peak <= first.least_bytes else Status.SEARCHED
    return of_lists(name, step, lists, status, said=first.status if peak == first.peak_bytes else said)


def _work(step: Step, lists: Lists) -> float:
    """Added work as a fraction of the plain step's."""
    cost = step.seconds or tuple(float(op.flops) for op in step.ops)
    return sum(cost[o] for ops in lists[1].values() for o in ops) / (sum(cost) or 1.0)
