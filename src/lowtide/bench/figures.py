"""The few kinds of figures that the experiments draw. matplotlib is imported when one is made."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Dark enough for white paper, and apart for eyes that see no red or green (after Okabe and Ito).
COLOURS = ("#999999", "#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9")


def new(columns: int, width: float = 9.0, height: float = 4.2) -> tuple[Figure, Sequence[Axes]]:
    """A figure with `columns` axes side by side; sizes in inches. It belongs to no window system."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(1, columns, squeeze=False)
    for axis in axes[0]:
        axis.grid(axis="y", alpha=0.3, linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(axes[0])


def bars(
    axis: Axes,
    labels: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    marks: Sequence[str] = (),
    within: float | None = None,
) -> None:
    """Groups of bars, a group per label and a bar per series; series named in `marks` are a black tick instead.

    Bars of more than `within`, up or down, are cut there and bear their number.
    """
    solid = [name for name in series if name not in marks]
    width = 0.8 / max(len(solid), 1)
    colours = COLOURS if len(solid) > 2 else COLOURS[2:]
    for k, name in enumerate(solid):
        at = [g - 0.4 + (k + 0.5) * width for g in range(len(labels))]
        heights = [v if v is not None else 0.0 for v in series[name]]
        if within is not None:
            for x, v in zip(at, heights, strict=True):
                if abs(v) > within:
                    axis.annotate(
                        f"{v:.0f} %", (x, v / abs(v) * within / 2), ha="center", va="center", rotation=90,
                        color="white", fontsize=7,
                    )  # fmt: skip
            heights = [max(-within, min(within, v)) for v in heights]
        axis.bar(at, heights, width, label=name, color=colours[k % len(colours)])
    for name in marks:
        found = [(g, v) for g, v in enumerate(series[name]) if v is not None]
        for n, (g, v) in enumerate(found):
            label = name if n == 0 else None
            axis.plot([g - 0.42, g + 0.42], [v, v], color="black", linewidth=1.2, label=label)
    slanted: dict[str, Any] = {"rotation": 35, "ha": "right"} if not any("\n" in x for x in labels) else {}
    axis.set_xticks(range(len(labels)), labels, fontsize=8, **slanted)
    axis.legend(fontsize=8, frameon=False)


def lines(axis: Axes, series: Mapping[str, Sequence[tuple[float, float]]], dashed: Sequence[str] = ()) -> None:
    """A line with points per series of (x, y); those named in `dashed` are dashed, in the colour of the one before."""
    colour = -1
    for name, points in series.items():
        colour += name not in dashed
        style: dict[str, Any] = {"linestyle": "--", "marker": "o", "markerfacecolor": "white"}
        style = style if name in dashed else {"marker": "o"}
        x, y = zip(*points, strict=True)
        axis.plot(x, y, label=name, color=COLOURS[1:][colour % 6], markersize=4, linewidth=1.3, **style)
    axis.legend(fontsize=8, frameon=False)


def label(axis: Axes, title: str, x: str = "", y: str = "", log2: bool = False) -> None:
    """Title and names of the axes; with `log2` both in powers of two."""
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    if log2:
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        axis.xaxis.set_major_formatter("{x:.0f}")
        axis.yaxis.set_major_formatter("{x:,.0f}")


def zero_line(axis: Axes) -> None:
    """A thin line at 0."""
    axis.axhline(0, color="black", linewidth=0.8)
