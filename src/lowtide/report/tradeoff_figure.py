"""The trade-off between memory and time as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowtide.errors import InputError
from lowtide.report.pyplot import matplotlib_and_pyplot
from lowtide.report.text import title

if TYPE_CHECKING:
    from lowtide.planning.tradeoff import Curve


def draw(curve: Curve, path: str) -> None:
    """Draw peak against added time, with the bound on the time of all plans, into a file.

    Raises:
        InputError: if matplotlib is not installed, or the file cannot be written.
    """
    _, plt = matplotlib_and_pyplot()
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    total_s = curve.step.total_seconds or 1.0
    gib = [p.peak_bytes / 2**30 for p in curve.points]
    axes.step(gib, [100 * p.slowdown for p in curve.points], where="pre", marker="o", markersize=4, label="plans")
    bound = [(x, 100 * p.least_s / total_s) for x, p in zip(gib, curve.points, strict=True) if p.least_s < float("inf")]
    axes.plot([x for x, _ in bound], [y for _, y in bound], ":", color="gray", label="no plan can be below")
    axes.set_xlabel("peak of the step, GiB")
    axes.set_ylabel("added time, %")
    axes.set_title(f"{title(curve.step)}\n{curve.step.meta.get('costs', '')}", fontsize=9)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as e:
        raise InputError(f"cannot write the figure to {path!r}: {e}") from e
    finally:
        plt.close(figure)
