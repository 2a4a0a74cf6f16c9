"""The memory of a step as a figure for papers, by matplotlib."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from lowtide.files import write_whole
from lowtide.planning.blocks import Kind
from lowtide.report.layers import Layers, layers_of, without_plan
from lowtide.report.pyplot import matplotlib_and_pyplot
from lowtide.report.text import title
from lowtide.report.timeline_svg import LEFT, RIGHT, columns_of, phase_at
from lowtide.units import format_bytes

if TYPE_CHECKING:
    from lowtide.planning.plan import Plan

COLOURS = {
    Kind.PARAMETER: "#8793a0",
    Kind.GRADIENT: "#c48bb5",
    Kind.OPTIMIZER: "#a99bc9",
    Kind.INPUT: "#79a7b8",
    Kind.KEPT: "#1f6fb2",
    Kind.RECOMPUTED: "#e08a1e",
    Kind.TRANSIENT: "#7dbb8f",
}
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))


def draw_timeline(plan: Plan, path: str, file_format: str) -> None:
    """Draw a plan's timeline, and that of the step without it as a line.

    Args:
        file_format: `'png'` or `'svg'`.

    Raises:
        InputError: if matplotlib is not installed, or the file cannot be written.
    """
    matplotlib, plt = matplotlib_and_pyplot()
    figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
    try:
        _draw(axes, plan)
        content = io.BytesIO()
        # The same plan gives the same file: no date, and ids that do not change.
        with matplotlib.rc_context({"svg.hashsalt": "lowtide"}):
            figure.savefig(
                content, format=file_format, dpi=200, metadata={"Date": None} if file_format == "svg" else None
            )
    finally:
        plt.close(figure)
    write_whole(path, content.getvalue(), "the figure")


def _draw(axes: Any, plan: Plan) -> None:
    step = plan.step
    planned, baseline = layers_of(step, plan), without_plan(step)
    top = baseline.timeline.total_peak_bytes
    unit, size = next((u, s) for u, s in _UNITS if top >= s or s == 1)
    if step.n_moments:
        _areas(axes, planned, baseline, size)
    axes.set_ylabel(f"memory, {unit}")
    axes.set_ylim(bottom=0, top=1.12 * max(top, 1) / size)
    axes.set_title(title(step), fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False, ncols=2, loc="upper right")


def _areas(axes: Any, planned: Layers, baseline: Layers, size: int) -> None:
    c = columns_of(planned, baseline, 1100 + LEFT + RIGHT)
    edges = c.edges
    below = [0.0] * len(c.shown)
    for kind, row in planned.of.items():
        levels = [b + row[m] / size for b, m in zip(below, c.shown, strict=True)]
        if levels != below:
            axes.stairs(levels, edges, baseline=below, fill=True, color=COLOURS[kind], label=kind.value, linewidth=0)
        below = levels
    axes.stairs(
        [b / size for b in c.baseline], edges, baseline=None, color="#b3261e", linewidth=1, label="without a plan"
    )
    for of, name, colour in ((planned, "peak", "black"), (baseline, "without a plan", "#b3261e")):
        column = c.of(of.timeline.peak_moment)
        spot = ((edges[column] + edges[column + 1]) / 2, of.timeline.total_peak_bytes / size)
        axes.plot(*spot, "o", color=colour, markersize=3)
        text = f"{name} {format_bytes(of.timeline.total_peak_bytes)}"
        late = column > len(c.shown) / 2
        style = {"fontsize": 7, "color": colour, "ha": "right" if late else "left"}
        axes.annotate(text, spot, (-4 if late else 4, 4), textcoords="offset points", **style)
    step = planned.timeline.step
    names = [phase_at(step, m).value for m in c.starts]
    first = {name: names.index(name) for name in dict.fromkeys(names)}
    axes.set_xticks([edges[k] for k in first.values()], [*first], fontsize=8, ha="left")
    axes.set_xlim(edges[0], edges[-1])
