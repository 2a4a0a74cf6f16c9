"""Close matches for a name that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggest(name: str, known: Iterable[str], fallback: str = "") -> str:
    """`'; did you mean a, b?'`, or `fallback` if no known name is close."""
    names = {k.lower(): k for k in known}
    close = get_close_matches(name.lower(), names, n=3, cutoff=0.6)
    if not close:
        close = sorted((k for k in names if name.lower() and name.lower() in k), key=len)[:3]
    return f"; did you mean {', '.join(names[c] for c in close)}?" if close else fallback
