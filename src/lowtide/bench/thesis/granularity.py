"""5.6: how finely the network is taken apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from lowtide.bench import figures
from lowtide.bench.models.network import Network
from lowtide.bench.models.sequential import sequential
from lowtide.bench.peaks import mb, peak_of, percent, tensors_of, traced
from lowtide.bench.result import Experiment, Progress, Result, Row, Table
from lowtide.bench.segments import stage_of
from lowtide.models.build import build
from lowtide.planning.plan import Plan
from lowtide.planning.reduce import Grouping
from lowtide.planning.simulate import simulate
from lowtide.planning.solve import solve
from lowtide.planning.solve.linear import Linear
from lowtide.planning.step import Step

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAKE_SIZES: dict[str, tuple[int, int]] = {"alexnet": (1024, 224), "vgg16": (64, 224)}
REAL_SIZES: dict[str, tuple[int, int]] = {"alexnet": (64, 224), "vgg16": (6, 160)}
QUICK_SIZES: dict[str, tuple[int, int]] = {"alexnet": (32, 160)}

NONE, PLAIN, POOLING, EVERY = "no checkpoints", "plain layers", "standalone pooling", "every op"
FRONTIER = "frontier on ops"

COLUMNS = (
    "net", "batch", "layers", "stages", "formula", "predicted", "found", "of no checkpoints %", "added FLOPs %",
    "tensors",
)  # fmt: skip

NOTES = (
    "MB (2^20) above the start of the step; the loss is the sum of the output, dropout off.",
    "plain layers: a convolution or linear layer with the activation and the pooling after it is one stage. "
    "standalone pooling: pooling layers are stages of their own. every op: a stage per op that writes memory. All by "
    "`linear`: of the checkpoints with the least peak by the formula, those that are best on the step. The last row is "
    "solver `frontier`, "
    "which plans on the step itself and can cut where a value is overwritten later.",
    "formula: the chain's own peak. predicted: the plan on the step, simulated. found: the step run under the plan.",
    "Which network is meant by plain specification in the thesis is our reading of its table of contents.",
)


def layers_of(stages: nn.Sequential, pooling_apart: bool) -> Grouping:
    """Stage of the sequence -> number of its layer: a layer begins at every convolution and linear layer, and with
    `pooling_apart` at every pooling, too, and after it."""
    number, at = 0, dict[str, int]()
    after_pooling = False
    for k, m in enumerate(stages):
        pooling = isinstance(m, (nn.MaxPool2d, nn.AdaptiveAvgPool2d))
        starts = isinstance(m, (nn.Conv2d, nn.Linear)) or (pooling_apart and (pooling or after_pooling))
        number += starts
        at[str(k)] = number
        after_pooling = pooling
    return lambda path: at.get(stage_of(path) or "")


def _network(name: str, batch: int, size: int, device: str) -> tuple[Network, nn.Sequential]:
    model, x = build(
        lambda: (sequential(name), torch.randn(batch, 3, size, size)), device="meta" if device == "meta" else "cpu"
    )
    if device not in ("meta", "cpu"):
        model, x = model.to(device), x.to(device)
    return Network(name, model, (x,), device), model


def _plans(step: Step, stages: nn.Sequential) -> dict[str, tuple[Plan | None, int | None, int | None]]:
    """Granularity -> plan, number of stages, the chain's own peak."""
    out: dict[str, tuple[Plan | None, int | None, int | None]] = {NONE: (None, None, None)}
    for name, grain in (
        (PLAIN, layers_of(stages, pooling_apart=False)),
        (POOLING, layers_of(stages, pooling_apart=True)),
        (EVERY, "op"),
    ):
        found = solve(step, Linear(granularity=grain))
        out[name] = found.plan, int(found.stats["stages"]), int(found.stats["chain_peak_bytes"])
    out[FRONTIER] = solve(step, "frontier").plan, None, None
    return out


def run(quick: bool, progress: Progress) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """AlexNet, and VGG16 beside it; large on fake tensors and small for real."""
    real = "cuda" if torch.cuda.is_available() else "cpu"
    work = [(name, *of, "meta") for name, of in FAKE_SIZES.items() if not quick or name == "alexnet"]
    work += [(name, *of, real) for name, of in (QUICK_SIZES if quick else REAL_SIZES).items()]
    rows: list[Row] = []
    for k, (name, batch, size, device) in enumerate(work):
        progress(name, k / len(work))
        network, stages = _network(name, batch, size, device)
        step = traced(network)
        plain = peak_of(network, step)
        for label, (plan, n, formula) in _plans(step, stages).items():
            found = plain if plan is None else peak_of(network, step, plan)
            rows.append({
                "net": name,
                "batch": batch,
                "layers": label,
                "stages": n,
                "formula": mb(formula),
                "predicted": mb(simulate(step, plan).peak_bytes),
                "found": mb(found),
                "of no checkpoints %": percent(found, plain),
                "added FLOPs %": percent(plan.recompute_flops, step.total_flops) if plan is not None else 0.0,
                "tensors": tensors_of(network),
            })  # fmt: skip
    return (Table("Least peaks of AlexNet and VGG16 in MB", COLUMNS, tuple(rows)),), NOTES


def draw(result: Result) -> Figure:
    """Fractions of the plain peak and added work, per granularity and run."""
    rows = result.tables[0].rows
    runs = list(dict.fromkeys(map(_key, rows)))
    figure, axes = figures.new(2, width=13)
    for axis, column, title in zip(
        axes,
        ("of no checkpoints %", "added FLOPs %"),
        ("Peak, % of no checkpoints", "Added FLOPs, % of the step"),
        strict=True,
    ):
        series = {
            label: [next(r[column] for r in rows if _key(r) == key and r["layers"] == label) for key in runs]
            for label in (PLAIN, POOLING, EVERY, FRONTIER)
        }
        labels = [f"{net} {batch}\n{tensors.split(',')[0]}" for net, batch, tensors in runs]
        figures.bars(axis, labels, series)
        figures.label(axis, title)
    return figure


def _key(row: Row) -> tuple[str, int, str]:
    return row["net"], row["batch"], row["tensors"]


EXPERIMENT = Experiment("5.6", "granularity", "Granularity of the network's specification", run, draw)
