"""`lowtide.tradeoff`: the curve between memory and time, from a model or a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from lowtide.acting.api import costed_step
from lowtide.planning import tradeoff as planning
from lowtide.planning.step import Step


def tradeoff(
    model_or_step: nn.Module | Step,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: Any = None,
    device: str | None = None,
    points: int = 20,
    max_slowdown: float = 0.5,
    progress: Callable[[str, float], None] | None = None,
) -> planning.Curve:
    """The front of peak memory against added time: some `points` plans, from no recomputation to the least peak.

    Args:
        model_or_step, args, kwargs, loss, optimizer, device, progress: as for `lowtide.plan`.
        points: about how many plans; at least 2.
        max_slowdown: added time at the smallest end, as a fraction of the step's.

    Raises:
        InputError, TraceError: as `lowtide.plan`.
    """
    step = costed_step(model_or_step, args, kwargs, loss, optimizer, device, True, progress)
    report = progress or (lambda *_: None)
    return planning.tradeoff(step, points, max_slowdown, lambda f: report("plan", f))
