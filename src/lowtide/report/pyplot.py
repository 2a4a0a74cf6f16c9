"""matplotlib, which is not among the dependencies, when a figure is drawn."""

from __future__ import annotations

import importlib
from typing import Any

from lowtide.errors import InputError


def matplotlib_and_pyplot() -> tuple[Any, Any]:
    """The modules `matplotlib` and `matplotlib.pyplot`, drawing into files.

    Raises:
        InputError: if matplotlib is not installed.
    """
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        return matplotlib, importlib.import_module("matplotlib.pyplot")
    except ImportError as e:
        raise InputError(f"a figure needs matplotlib: install it with pip install 'lowtide[report]' ({e})") from e
