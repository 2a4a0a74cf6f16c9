"""What goes wrong in somebody else's constructor, in one sentence."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from lowtide.errors import InputError, LowtideError


def first_line(error: BaseException) -> str:
    """`RuntimeError: what it says`, on one line of at most 200 characters."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__
    return text if len(text) <= 200 else f"{text[:197]}..."


@contextmanager
def building(what: str, settings: Mapping[str, Any]) -> Generator[None]:
    """Turns any error inside into an `InputError` that names the model and its settings."""
    try:
        yield
    except LowtideError:
        raise
    except (Exception, SystemExit) as e:
        given = f" with {', '.join(f'{k}={v!r}' for k, v in settings.items())}" if settings else ""
        raise InputError(f"{what} cannot be built{given}: {first_line(e)}") from e
