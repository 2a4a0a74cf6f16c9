"""5.2: what was predicted, and what PyTorch reports."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from lowtide.bench import figures
from lowtide.bench.models import RECIPES, Network
from lowtide.bench.peaks import mb, measured, tensors_of, traced
from lowtide.bench.result import Experiment, Progress, Result, Row, Table
from lowtide.errors import LowtideError
from lowtide.planning.reduce import reduce
from lowtide.planning.simulate import simulate
from lowtide.planning.solve import solve
from lowtide.planning.step import Step

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lowtide.planning.plan import Plan

# name -> batch, size: activations outweigh parameters, and a step takes a few seconds on two cores.
SIZES: dict[str, tuple[int, int]] = {
    "alexnet": (96, 224),
    "vgg11": (8, 128),
    "vgg16": (8, 128),
    "resnet18": (16, 160),
    "resnet50": (8, 128),
    "resnet101": (8, 128),
    "wide_resnet50_2": (6, 128),
    "seresnet50": (8, 128),
    "densenet121": (8, 128),
    "inception_v3": (4, 224),
    "efficientnet_b0": (8, 160),
    "cyclegan": (1, 128),
    "fcn_resnet50": (2, 128),
    "gnmt": (32, 16),
    "coca": (3, 224),
}
QUICK: dict[str, tuple[int, int]] = {"resnet18": (8, 96), "resnet50": (4, 96), "densenet121": (4, 64)}

COLUMNS = (
    "net", "batch", "size", "plan", "formula", "from shapes", "predicted", "reported", "formula off %", "shapes off %",
    "off %", "tensors",
)  # fmt: skip

NONE, LINEAR, FRONTIER = "none", "linear on modules", "frontier on ops"

NOTES = (
    "MB (2^20) above the start of the step, gradients included; the loss is the sum of the output, or the model's own.",
    "formula: the chain's own, the revised objective for the checkpoints; only where a plan is on a chain (none: the "
    "chain of modules without checkpoints). from shapes: the step simulated under the plan, tensors alone. predicted: "
    "the same with the scratch of the CPU's kernels, each measured before in a call of its own.",
    "reported: the most bytes that PyTorch's allocator had handed out at one time, kernels' scratch included.",
    "off %: above 0, more was predicted than reported.",
)


def run(quick: bool, progress: Progress) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """Each network with no plan and under two."""
    sizes = QUICK if quick else SIZES
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows: list[Row] = []
    notes: list[str] = list(NOTES)
    for k, (name, (batch, size)) in enumerate(sizes.items()):
        progress(name, k / len(sizes))
        network = RECIPES[name].make(batch, size, device)
        step = traced(network)
        for label, (plan, formula) in _plans(step).items():
            row: dict[str, Any] = {"net": name, "batch": batch, "size": size, "plan": label}
            row |= {"tensors": tensors_of(network)}
            try:
                rows.append(row | _found(network, step, plan, formula))
            except LowtideError as e:
                rows.append(row | {"error": str(e)})
                notes.append(f"{name}, {label}, did not run: {e}")
    return (Table("Predicted and reported peaks in MB", COLUMNS, tuple(rows)),), tuple(notes)


def _plans(step: Step) -> dict[str, tuple[Plan | None, int | None]]:
    """Plan, and the chain's own peak."""
    chain = reduce(step, "module")
    on_chain = solve(step, "linear")
    return {
        NONE: (None, chain.peak_bytes(())),
        LINEAR: (on_chain.plan, chain.peak_bytes(on_chain.checkpoints)),
        FRONTIER: (solve(step, "frontier").plan, None),
    }


def _found(network: Network, step: Step, plan: Plan | None, formula: int | None) -> dict[str, Any]:
    shapes = simulate(replace(step, workspace_bytes=()), plan).peak_bytes
    predicted = simulate(step, plan).peak_bytes
    reported = measured(network, plan)
    return {
        "formula": mb(formula),
        "from shapes": mb(shapes),
        "predicted": mb(predicted),
        "reported": mb(reported),
        "formula off %": None if formula is None else _off(formula, reported),
        "shapes off %": _off(shapes, reported),
        "off %": _off(predicted, reported),
        "bytes": {"formula": formula, "shapes": shapes, "predicted": predicted, "reported": reported},
    }


def _off(predicted: int, reported: int) -> float:
    return round(100 * (predicted / reported - 1), 2)


def draw(result: Result) -> Figure:
    """Error per network: from shapes alone, and with scratch."""
    rows = result.tables[0].rows
    nets = list(dict.fromkeys(r["net"] for r in rows))

    def errors(plan: str, key: str) -> list[float | None]:
        return [next(r.get(key) for r in rows if r["net"] == n and r["plan"] == plan) for n in nets]

    figure, (axis,) = figures.new(1, width=11)
    series = {
        "no plan, from shapes": errors(NONE, "shapes off %"),
        "frontier, from shapes": errors(FRONTIER, "shapes off %"),
        "no plan, predicted": errors(NONE, "off %"),
        "frontier, predicted": errors(FRONTIER, "off %"),
    }
    figures.bars(axis, nets, series, within=15)
    figures.zero_line(axis)
    title = f"Prediction against PyTorch's report ({rows[0]['tensors']})"
    figures.label(axis, title, y="above (below) what was reported, %")
    return figure


EXPERIMENT = Experiment("5.2", "prediction", "Prediction against PyTorch's report", run, draw)
