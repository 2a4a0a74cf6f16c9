"""The plan along the network as a picture: what each op's output costs, what becomes of it, how often it runs again."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from lowtide.report.names import short_op
from lowtide.report.saved import saved_storages
from lowtide.report.svg import byte_ticks, line, picture, rectangle, scale, text
from lowtide.report.tree import depths
from lowtide.units import format_bytes

if TYPE_CHECKING:
    from lowtide.planning.plan import Plan

LEFT, RIGHT, TOP, BOTTOM = 74, 14, 26, 8
LANE = 22  # height of the lane of runs
GAP = 6
MOST_BARS = 700


class _Bar(NamedTuple):
    """Bytes kept, dropped and compressed away, the most runs of an op, and what is said about it."""

    kept: int
    dropped: int
    coded: int
    runs: int
    tip: str


def network_svg(plan: Plan, width: int = 1100, height: int = 230) -> str:
    """Forward ops from left to right. Above: bytes of what they write and autograd saves, kept or dropped. Below: how
    often each runs again in backward."""
    step = plan.step
    n = step.n_forward
    label = "What is kept and recomputed along the network"
    if not n:
        return picture(width, height, [text(width / 2, height / 2, "no op in forward", anchor="middle")], label)
    kept, dropped, coded = [0] * n, [0] * n, [0] * n
    for s in saved_storages(step, plan.keep):
        kept[s.op] += s.kept_bytes
        dropped[s.op] += s.recomputed_bytes
        coded[s.op] += s.compressed_bytes
    runs = [0] * n
    for ops in plan.runs.values():
        for o in ops:
            runs[o] += 1
    count = min(n, MOST_BARS)
    x = scale(0, count, LEFT, width - RIGHT)
    base = height - BOTTOM - LANE - GAP
    bars = [_bar(plan, range(n * k // count, n * (k + 1) // count), kept, dropped, coded, runs) for k in range(count)]
    top = max(bar.kept + bar.dropped + bar.coded for bar in bars)
    y = scale(0, top or 1, base, TOP + 4)
    parts = _bands(plan, width, height)
    for size, name in byte_ticks(top, 4):
        parts += [line(LEFT, y(size), width - RIGHT, y(size), "grid"), text(LEFT - 8, y(size) + 4, name, "axis", "end")]
    parts.append(text(LEFT - 8, height - BOTTOM - LANE / 2 + 4, "run again", "axis", "end"))
    parts.append(rectangle(LEFT, height - BOTTOM - LANE, width - RIGHT - LEFT, LANE, "lane"))
    gap = 0.6 if x(1) - x(0) > 3 else 0.0
    for k, bar in enumerate(bars):
        w = x(k + 1) - x(k) - gap
        if bar.kept:
            parts.append(rectangle(x(k), y(bar.kept), w, base - y(bar.kept), "kept fill", bar.tip))
        if bar.dropped:
            above = y(bar.kept + bar.dropped)
            parts.append(rectangle(x(k), above, w, y(bar.kept) - above, "recomputed fill", bar.tip))
        if bar.coded:
            below = y(bar.kept + bar.dropped)
            above = y(bar.kept + bar.dropped + bar.coded)
            parts.append(rectangle(x(k), above, w, below - above, "coded fill", bar.tip))
        if bar.runs:
            classes = f"runs runs-{min(bar.runs, 4)}"
            parts.append(rectangle(x(k), height - BOTTOM - LANE, w, LANE, classes, bar.tip))
            if w >= 9:
                middle = x(k) + w / 2
                parts.append(text(middle, height - BOTTOM - LANE / 2 + 4, str(bar.runs), "run-count", "middle"))
    return picture(width, height, parts, label, "network")


def _bar(plan: Plan, ops: range, kept: list[int], dropped: list[int], coded: list[int], runs: list[int]) -> _Bar:
    """One op, or a few in a row where there are too many; the largest of them gives its name."""
    largest = max(ops, key=lambda o: (kept[o] + dropped[o] + coded[o], runs[o]))
    op = plan.step.ops[largest]
    what = f"{short_op(op.name)}\n{op.module or 'the model itself'}"
    if len(ops) > 1:
        what += f"\nand {len(ops) - 1} op{'s' if len(ops) > 2 else ''} beside it"
    a, b, n = sum(kept[o] for o in ops), sum(dropped[o] for o in ops), max(runs[o] for o in ops)
    c = sum(coded[o] for o in ops)
    return _Bar(a, b, c, n, f"{what}\n{format_bytes(a + b + c)} saved for backward\n{_fate(a, b, c, n)}")


def _fate(kept: int, dropped: int, coded: int, runs: int) -> str:
    again = "not run again" if not runs else "run again once" if runs == 1 else f"run again {runs} times"
    if coded:
        return f"{format_bytes(kept)} kept, {format_bytes(coded)} compressed away; {again}"
    if kept and dropped:
        return f"{format_bytes(kept)} kept, the rest dropped; {again}"
    return f"{'kept' if kept else 'dropped' if dropped else 'nothing to keep'}; {again}"


def _bands(plan: Plan, width: int, height: int) -> list[str]:
    """Names of modules above the ops, from as deep as leaves room for most of them."""
    step, n = plan.step, plan.step.n_forward
    x = scale(0, n, LEFT, width - RIGHT)
    best: list[tuple[str, int, int]] = []
    for depth in range(1, depths(step) + 1):
        found: list[tuple[str, int, int]] = []
        k = 0
        for name, group in groupby(".".join(op.module.split(".")[:depth]) for op in step.ops[:n]):
            start, k = k, k + len(list(group))
            found.append((name, start, k))
        if len(found) > 56 and best:
            break
        best = found
    parts: list[str] = []
    for k, (name, start, end) in enumerate(best):
        room = int((x(end) - x(start)) / 7)
        if k % 2:
            parts.append(rectangle(x(start), TOP - 18, x(end) - x(start), height - TOP - BOTTOM + 18, "band"))
        shown = name if len(name) <= room else name.rsplit(".", 1)[-1]
        if len(shown) <= room:
            parts.append(text((x(start) + x(end)) / 2, TOP - 5, shown, "band-name", "middle"))
    return parts
