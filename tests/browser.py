"""A headless Chromium for tests of pages; what cannot be had is a reason to skip."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

# Nothing here needs the network; a browser that looks for updates would.
_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str | None:
    """The browser of this machine: $LOWTIDE_BROWSER, or one on the path."""
    return os.environ.get("LOWTIDE_BROWSER") or next((p for p in map(shutil.which, _NAMES) if p), None)


@contextmanager
def browser() -> Generator[Any]:
    """A browser, or a skipped test.

    Its pages may open files, nothing else.
    """
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'lowtide[dev]'")
    path = find_browser()
    if path is None:
        pytest.skip("needs Chromium: install it (Debian: apt-get install chromium), or set LOWTIDE_BROWSER to its path")
    with api.sync_playwright() as p:
        found = p.chromium.launch(executable_path=path, args=_FLAGS)
        try:
            yield found
        finally:
            found.close()
