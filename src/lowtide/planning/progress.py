"""Progress of long work: a function that is called with a fraction in [0, 1] now and then."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float], None]


def silent(_: float) -> None:
    """For whoever does not want to know."""
