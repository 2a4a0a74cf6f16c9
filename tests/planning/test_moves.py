from __future__ import annotations

import random

from lowtide.planning.account import Accountant, Row
from lowtide.planning.check import check
from lowtide.planning.frontiers import Frontiers
from lowtide.planning.moves import Mover
from tests.random_steps import random_plan, random_step


def test_moves_make_plans_and_free_the_place() -> None:
    drops = freed = holds = 0
    for seed in range(150):
        step = random_step(seed, 3 + seed % 9)
        accountant = Accountant(Frontiers(step))
        mover, rng = Mover(accountant), random.Random(seed)
        a = accountant.account(accountant.without_idle(Row.of(len(step.values), random_plan(step, rng))))
        mover.room = rng.randint(0, 2 * a.peak + 1)
        for _ in range(8):
            place = rng.randrange(len(a.level))
            for w in mover.waiting(a, place):
                assert w.since <= place < w.needed
                row = mover.drop(a, w, place, rng.random() < 0.5)
                if row is None:
                    continue
                assert not check(step, *row.lists())
                drops += 1
                # The place may have moved back with runs before it, never forward of what comes after it.
                b = accountant.account(row)
                freed += b.level[: place + 1].sum() < a.level[: place + 1].sum()
        for run in range(len(a.row.ops)):
            row = mover.hold(a, run)
            if row is not None:
                assert not check(step, *row.lists())
                assert len(row.ops) < len(a.row.ops)
                assert accountant.account(row).cost < a.cost
                holds += 1
    assert drops > 300
    assert freed > 0.5 * drops
    assert holds > 100


def test_holding_asks_for_room() -> None:
    """All but where an op in place took a storage over that is now held, so that it works on a copy."""
    peaks: list[bool] = []
    for seed in range(60):
        step = random_step(seed, 3 + seed % 9)
        accountant = Accountant(Frontiers(step))
        mover = Mover(accountant)
        a = accountant.account(
            accountant.without_idle(Row.of(len(step.values), random_plan(step, random.Random(seed))))
        )
        mover.room = a.peak
        for run in range(len(a.row.ops)):
            row = mover.hold(a, run)
            if row is not None:
                peaks.append(accountant.account(row).peak <= a.peak)
    assert len(peaks) > 50
    assert sum(peaks) > 0.97 * len(peaks)
