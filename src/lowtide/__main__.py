"""`python -m lowtide`."""

from __future__ import annotations

from lowtide.cli import console

console()
