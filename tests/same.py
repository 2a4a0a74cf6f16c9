"""The question of most executor tests: is a step under arbitrary plans the plain step, to the bit?"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

import lowtide
from lowtide.acting.loss import scalar_loss
from lowtide.planning.plan import Plan
from lowtide.planning.step import Step
from tests.outcome import differences, seed_all, train
from tests.plans import drop_everything, random_plan

Made = tuple[nn.Module, tuple[Any, ...], "Callable[[Any], Tensor] | None"]


def plans_of(step: Step, seeds: int = 3) -> Iterator[Plan]:
    """Drop everything, and a few at random."""
    yield drop_everything(step)
    for seed in range(seeds):
        yield random_plan(step, seed)


def made(make: Callable[[], Made], seed: int = 0) -> Made:
    """The same model and inputs at every call."""
    seed_all(seed)
    return make()


def traced(make: Callable[[], Made]) -> Step:
    model, args, loss = made(make)
    return lowtide.trace(model, args, loss=loss)


def assert_same(
    make: Callable[[], Made],
    *,
    step: Step | None = None,
    losses: Callable[[Any], list[Tensor]] | None = None,
    recomputes: bool = True,
    diverges: bool = False,
    steps: int = 2,
) -> Step:
    """Train a few steps plain and under plans; every bit left behind must be the same.

    Args:
        step: what the plans are made for; by default the traced step itself.
        losses: several losses of the output, each run backward on its own.
        recomputes: the plan that drops everything must have something to recompute, or the test would test nothing.
        diverges: the step leaves its plan, so that there is a warning.
    """
    step = step or traced(make)

    def once(region: Callable[[], contextlib.AbstractContextManager[Any]]) -> dict[str, Any]:
        model, args, loss = made(make)
        return train(model, args, losses or (lambda out: [scalar_loss(out, loss)]), region, steps=steps)

    plain = once(contextlib.nullcontext)
    for plan in plans_of(step):
        if recomputes and plan.solver == "drop everything":
            assert plan.recompute_ops > 0, "this plan recomputes nothing"
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore" if diverges else "error", message="this step leaves its plan")
            planned = once(lambda plan=plan: lowtide.remat(plan))
        assert differences(plain, planned) == [], f"under the plan {plan.solver}"
    return step
