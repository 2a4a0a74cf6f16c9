"""What a plan does with values and why, as text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING

from lowtide.report.columns import columns, shorten
from lowtide.report.fates import Fate, What, sentences
from lowtide.report.names import short_op
from lowtide.report.text import title
from lowtide.units import format_bytes

if TYPE_CHECKING:
    from lowtide.planning.plan import Plan

_WIDTH = 80
_SAVED = (What.KEPT, What.CODED, What.SOURCE, What.RECOMPUTED, What.UNUSED)


def explain_plan(plan: Plan, every: Sequence[Fate], top: int = 20) -> str:
    """A line per value that autograd saves or the plan keeps: the `top` largest (0: all), in the order of the
    network."""
    saved = [f for f in every if f.what in _SAVED]
    if not saved:
        return f"Values of {title(plan.step)}: autograd saves none that a plan could drop."
    largest = sorted(saved, key=lambda f: (-f.nbytes, f.value))[: top or len(saved)]
    rows = [["value", "bytes", "what happens to it"]]
    for f in sorted(largest, key=lambda f: f.value):
        where = shorten(f"{short_op(f.op)} of {f.module or 'the model itself'}", 40)
        rows.append([where, format_bytes(f.nbytes), _briefly(f)])
    width = max(len(r[0]) for r in rows)
    sizes = max(len(r[1]) for r in rows)
    lines = [f"{a.ljust(width)}  {b.rjust(sizes)}  {c}" for a, b, c in rows]
    left = len(saved) - len(largest)
    text = [shorten(f"Values of {title(plan.step)}", _WIDTH), "", *lines]
    if left:
        rest = sum(f.nbytes for f in saved) - sum(f.nbytes for f in largest)
        text += [
            "",
            f"{left:,} smaller ones are left out ({format_bytes(rest)}): --top 0 shows all, --module PATH says why.",
        ]
    return "\n".join(text)


def _briefly(f: Fate) -> str:
    if f.what is What.RECOMPUTED:
        return "recomputed" if len(f.made_at) == 1 else f"recomputed {len(f.made_at)} times"
    if f.what is What.CODED:
        return f"held as {format_bytes(f.code_bytes)}" if f.code_bytes else "only its shape is held"
    if f.what is What.UNUSED:
        return "dropped, never asked for"
    if f.pinned:
        return "kept: cannot be recomputed"
    return "kept" if f.what is What.KEPT else "kept to recompute from"


def explain_module(plan: Plan, every: Sequence[Fate]) -> str:
    """A paragraph per value, by module, in the order of the network; sums at the end."""
    lines: list[str] = []
    told = [f for f in every if f.nbytes and f.what is not What.THERE]  # running statistics tell nothing
    for module, group in groupby(told, key=lambda f: f.module):
        lines += [module or "the model itself", ""]
        for f in group:
            lines.append(f"  {short_op(f.op)}: {format_bytes(f.nbytes)} (value {f.value})")
            lines += wrap(
                " ".join(sentences(plan, f)), _WIDTH, initial_indent="    ", subsequent_indent="    ",
                break_long_words=False,
            )  # fmt: skip
        lines.append("")
    return "\n".join([*lines, *columns(_sums(told))])


def _sums(every: Sequence[Fate]) -> list[list[str]]:
    """Values and bytes by what happens to them."""
    rows = [["in all", "values", "bytes"]]
    for what in What:
        those = [f for f in every if f.what is what]
        if those:
            rows.append([what.value, f"{len(those):,}", format_bytes(sum(f.nbytes for f in those))])
    return rows
