"""The plan along the network as a picture: what each op's output costs, what becomes of it, how often it runs again."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from lowtide.report.names import short_op
from lowtide.report.svg import byte_ticks, line, picture, rectangle, scale, text
from lowtide.report.tree import depths, saved_storages
from lowtide.units import format_bytes

if TYPE_CHECKING:
    from lowtide.planning.plan import Plan

LEFT, RIGHT, TOP, BOTTOM = 74, 14, 26, 8
LANE = 22  # height of the lane of runs
GAP = 6


def network_svg(plan: Plan, width: int = 1100, height: int = 230) -> str:
    """Forward ops from left to right. Above: bytes of what they write and autograd saves, kept or dropped. Below: how
    often each runs again in backward."""
    step = plan.step
    n = step.n_forward
    label = "What is kept and recomputed along the network"
    if not n:
        return picture(width, height, [text(width / 2, height / 2, "no op in forward", anchor="middle")], label)
    kept, dropped = [0] * n, [0] * n
    writer = {v.storage: v.op for v in reversed(step.values) if v.op >= 0}
    for s, (_, is_kept) in saved_storages(step, plan.keep).items():
        (kept if is_kept else dropped)[writer[s]] += step.storages[s].nbytes
    runs = [0] * n
    for ops in plan.runs.values():
        for o in ops:
            runs[o] += 1
    x = scale(0, n, LEFT, width - RIGHT)
    base = height - BOTTOM - LANE - GAP
    y = scale(0, max(map(sum, zip(kept, dropped, strict=True))) or 1, base, TOP + 4)
    parts = _bands(plan, width, height)
    for size, name in byte_ticks(max(map(sum, zip(kept, dropped, strict=True))), 4):
        parts += [line(LEFT, y(size), width - RIGHT, y(size), "grid"), text(LEFT - 8, y(size) + 4, name, "axis", "end")]
    parts.append(text(LEFT - 8, height - BOTTOM - LANE / 2 + 4, "run again", "axis", "end"))
    parts.append(rectangle(LEFT, height - BOTTOM - LANE, width - RIGHT - LEFT, LANE, "lane"))
    gap = 0.6 if x(1) - x(0) > 3 else 0.0
    for k, op in enumerate(step.ops[:n]):
        what = f"{short_op(op.name)}\n{op.module or 'the model itself'}"
        w = x(k + 1) - x(k) - gap
        tip = f"{what}\n{format_bytes(kept[k] + dropped[k])} saved for backward\n{_fate(kept[k], dropped[k], runs[k])}"
        if kept[k]:
            parts.append(rectangle(x(k), y(kept[k]), w, base - y(kept[k]), "kept fill", tip))
        if dropped[k]:
            top = y(kept[k] + dropped[k])
            parts.append(rectangle(x(k), top, w, y(kept[k]) - top, "recomputed fill", tip))
        if runs[k]:
            classes = f"runs runs-{min(runs[k], 4)}"
            parts.append(rectangle(x(k), height - BOTTOM - LANE, w, LANE, classes, tip))
            if w >= 9:
                middle = x(k) + w / 2
                parts.append(text(middle, height - BOTTOM - LANE / 2 + 4, str(runs[k]), "run-count", "middle"))
    return picture(width, height, parts, label, "network")


def _fate(kept: int, dropped: int, runs: int) -> str:
    again = "not run again" if not runs else "run again once" if runs == 1 else f"run again {runs} times"
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
        if len(found) > 24 and best:
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
