"""allowance: a budget as people write it -> bytes that the step may take above its start."""

from __future__ import annotations

import re

from lowtide.errors import InputError
from lowtide.planning.step import Step
from lowtide.units import format_bytes, parse_bytes

# What `budget="auto"` leaves free of what the device has: the allocator rounds sizes and leaves gaps, and libraries
# keep buffers of their own.
MARGIN = 0.08

_SHARE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*%\s*")


def is_auto(budget: object) -> bool:
    """Whether the budget is what is free."""
    return isinstance(budget, str) and budget.strip().lower() == "auto"


def less_margin(available_bytes: int) -> int:
    """What `budget="auto"` takes of what is free."""
    return int(available_bytes * (1 - MARGIN))


def allowance(
    step: Step, baseline_bytes: int, budget: int | str, budget_of: str = "total", available_bytes: int | None = None
) -> int:
    """Bytes above the start of the step that `budget` leaves for its peak.

    Args:
        baseline_bytes: peak of the step without a plan, above its start.
        budget: bytes, text with a unit (`'10GiB'`), a percentage of the peak without a plan (`'60%'`), or `'auto'`:
            `available_bytes` less a margin of 8 %.
        budget_of: `'total'` if the budget is what the device has to give, parameters, buffers, inputs and optimizer
            state included; `'step'` if it counts above the start of the step, as peaks do.
        available_bytes: what is there for everything, for `'auto'`.

    Raises:
        InputError: if the budget is no budget, or does not even cover what stands before the step.
    """
    if budget_of not in ("total", "step"):
        raise InputError(f"budget_of={budget_of!r}: write 'total' (everything counts) or 'step' (above its start)")
    standing = step.standing_bytes if budget_of == "total" else 0
    if isinstance(budget, bool) or not isinstance(budget, (int, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"budget={budget!r}: write a number of bytes, a size such as '10GiB', '60%' or 'auto'")
    share = _SHARE.fullmatch(budget) if isinstance(budget, str) else None
    if share is not None:
        total = int(float(share[1]) / 100 * (baseline_bytes + standing))
        if total <= 0:
            raise InputError(f"budget={budget!r}: a share of the peak must be more than 0 %")
    elif is_auto(budget):
        if available_bytes is None:
            raise InputError("budget='auto' wants to know what is free: write a size such as '10GiB'")
        total, standing = less_margin(available_bytes), step.standing_bytes
    else:
        total = parse_bytes(budget)
    if total <= standing:
        raise InputError(
            f"a budget of {format_bytes(total)} does not cover the {format_bytes(standing)} that are there before the "
            "step (parameters, buffers, inputs, gradients, optimizer state): raise it, or give budget_of='step'"
        )
    return total - standing
