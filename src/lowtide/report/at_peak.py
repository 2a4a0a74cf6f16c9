"""What the bytes at the peak are for, by category and by module, without a plan and under it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lowtide.planning.compress import uncompressed
from lowtide.planning.simulate import Timeline, describe_moment, simulate
from lowtide.report.columns import shorten
from lowtide.report.document import Pair, Table
from lowtide.report.names import short_place
from lowtide.units import format_bytes

if TYPE_CHECKING:
    from lowtide.planning.plan import Plan

_ROWS = 6
_PLACE = 58  # beside its label within 80 columns


def at_peak(timeline: Timeline) -> dict[str, Any]:
    """The peak's moment as plain data: where it is, and bytes by category and by module, standing ones included."""
    m = timeline.peak_moment
    if not timeline.level_bytes:
        return {"where": "nowhere", "by_category": {}, "by_module": {}}
    return {
        "where": describe_moment(timeline.step, m),
        "by_category": {c.value: n for c, n in timeline.by_category(m).items() if n},
        "by_module": timeline.by_module(m),
    }


def at_peak_tables(plan: Plan) -> tuple[Pair, list[list[str]]]:
    """A table by category beside one by module, and as facts where the two peaks are."""
    before, after = at_peak(simulate(uncompressed(plan.step))), at_peak(simulate(plan.step, plan))
    depth = _depth({*before["by_module"], *after["by_module"]})
    left = _table("at the peak", before["by_category"], after["by_category"])
    right = _table("by module", _upto_depth(before["by_module"], depth), _upto_depth(after["by_module"], depth))
    where = [
        ["peak without a plan", shorten(short_place(before["where"]), _PLACE)],
        ["peak under the plan", shorten(short_place(after["where"]), _PLACE)],
    ]
    return Pair(Table(left), Table(right)), where


def _table(title: str, before: Mapping[str, int], after: Mapping[str, int], rows: int = _ROWS) -> list[list[str]]:
    """Rows from the largest at the plan's peak on; the smallest ones added up."""
    names = sorted({**after, **before}, key=lambda n: (-after.get(n, 0), -before.get(n, 0)))
    shown = names if len(names) <= rows else names[: rows - 1]
    rest = names[len(shown) :]
    lines = [[title, "no plan", "planned"]]
    for n in shown:
        lines.append(
            [shorten(n or "the model itself", 18), format_bytes(before.get(n, 0)), format_bytes(after.get(n, 0))]
        )
    if rest:
        sums = (sum(side.get(n, 0) for n in rest) for side in (before, after))
        lines.append([f"({len(rest)} others)", *map(format_bytes, sums)])
    return lines


def _depth(names: set[str]) -> int:
    """How deep in the network modules can be told apart in so many rows."""
    depth = max((n.count(".") + 1 for n in names), default=1)
    while depth > 1 and len({_upto(n, depth) for n in names}) > _ROWS:
        depth -= 1
    return depth


def _upto_depth(side: Mapping[str, int], depth: int) -> dict[str, int]:
    total: dict[str, int] = {}
    for n, nbytes in side.items():
        total[_upto(n, depth)] = total.get(_upto(n, depth), 0) + nbytes
    return total


def _upto(name: str, depth: int) -> str:
    return ".".join(name.split(".")[:depth])
