from __future__ import annotations

from typing import Any

import pytest

from lowtide.errors import InputError
from lowtide.planning.allowance import MARGIN, allowance
from lowtide.planning.simulate import simulate
from tests.random_steps import residual_net

STEP = residual_net(3)
TOP = simulate(STEP).peak_bytes
STANDING = STEP.standing_bytes


def test_a_budget_counts_everything_unless_told_otherwise() -> None:
    assert allowance(STEP, TOP, 5000) == 5000 - STANDING
    assert allowance(STEP, TOP, "5 KiB") == 5 * 1024 - STANDING
    assert allowance(STEP, TOP, 5000, "step") == 5000


def test_shares_are_of_the_peak_without_a_plan() -> None:
    assert allowance(STEP, TOP, "100%") == TOP
    assert allowance(STEP, TOP, "60 %") == int(0.6 * (TOP + STANDING)) - STANDING
    assert allowance(STEP, TOP, "60%", "step") == int(0.6 * TOP)


def test_auto_leaves_a_margin_of_what_is_there() -> None:
    assert allowance(STEP, TOP, "auto", available_bytes=10_000) == int(10_000 * (1 - MARGIN)) - STANDING
    with pytest.raises(InputError, match="wants to know what is free"):
        allowance(STEP, TOP, "auto")


@pytest.mark.parametrize("budget", [0, -5, "lots", "0%", "-3%", None, True, 1.5])
def test_senseless_budgets_are_refused(budget: Any) -> None:
    with pytest.raises(InputError):
        allowance(STEP, TOP, budget)


def test_what_stands_must_be_covered() -> None:
    with pytest.raises(InputError, match=r"does not cover the .* before the step"):
        allowance(STEP, TOP, STANDING)
    with pytest.raises(InputError, match="write 'total'"):
        allowance(STEP, TOP, 5000, "half")
