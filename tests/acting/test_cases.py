"""Every case gives the bits of the plain step under any plan, over two steps with an optimizer between them."""

from __future__ import annotations

import warnings
from functools import cache

import pytest

import lowtide
from lowtide.planning.step import Step
from tests.cases import CASES, Example
from tests.outcome import Outcome, differences, train
from tests.plans import drop_everything, keep_all, random_plan


def step_of(e: Example) -> Step:
    return lowtide.trace(e.model, e.args, loss=lambda out: sum(e.losses(out)))


@cache
def plain(name: str) -> Outcome:
    e = CASES[name].make()
    return train(e.model, e.args, e.losses, state=e.state)


# Their second step is another stream of ops than the first: a counter that is None at first, layers drawn anew.
DIVERGE = {"12_aux_loss_and_counter", "25_python_rng_layerdrop"}

MAKERS = {
    "the solver's": lambda step: lowtide.plan(step),
    "keep all": keep_all,
    "drop everything": drop_everything,
    "at random": lambda step: random_plan(step, 1),
    "at random again": lambda step: random_plan(step, 2),
}


def compare(name: str, plan: lowtide.Plan) -> None:
    e = CASES[name].make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if name in DIVERGE else "error", UserWarning)
        planned = train(e.model, e.args, e.losses, lambda: lowtide.remat(plan), e.state)
    assert differences(plain(name), planned) == []


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("name", CASES)
def test_a_case_is_the_same_to_the_bit_under_a_plan(name: str, maker: str) -> None:
    compare(name, MAKERS[maker](step_of(CASES[name].make())))


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_the_same_to_the_bit_under_a_plan_for_another_batch_size(name: str) -> None:
    compare(name, drop_everything(step_of(CASES[name].make_at_another_batch())))


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_the_same_to_the_bit_under_checkpoint(name: str) -> None:
    e = CASES[name].make()
    lowtide.checkpoint(e.model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if name in DIVERGE else "error", UserWarning)
        planned = train(e.model, e.args, e.losses, state=e.state)
    assert differences(plain(name), planned) == []
