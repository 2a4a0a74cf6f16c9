"""5.5: other models, batch sizes and image sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from lowtide.bench import figures
from lowtide.bench.models import RECIPES, Network
from lowtide.bench.peaks import mb, peak_of, percent, tensors_of, traced
from lowtide.bench.result import Experiment, Progress, Result, Row, Table
from lowtide.errors import LowtideError
from lowtide.planning.solve import solve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# At the usual size of each network: batch on fake tensors, and for some the batch and size of a real step as well.
BATCHES: dict[str, int] = {
    "alexnet": 512,
    "vgg16": 64,
    "vgg19": 64,
    "resnet18": 128,
    "resnet50": 64,
    "resnet101": 64,
    "wide_resnet50_2": 64,
    "seresnet50": 64,
    "densenet121": 64,
    "inception_v4": 32,
    "nasnetalarge": 8,
    "efficientnet_b0": 64,
    "cyclegan": 4,
    "fcn_resnet50": 16,
    "gnmt": 128,
    "coca": 64,
}
REAL: dict[str, tuple[int, int]] = {
    "alexnet": (96, 224),
    "vgg16": (4, 160),
    "resnet50": (8, 160),
    "densenet121": (4, 160),
    "inception_v4": (2, 224),
    "nasnetalarge": (1, 160),
    "cyclegan": (1, 160),
    "fcn_resnet50": (2, 160),
    "gnmt": (32, 20),
    "coca": (4, 224),
}
QUICK = ("alexnet", "vgg16", "resnet50", "cyclegan", "gnmt", "coca")
QUICK_REAL: dict[str, tuple[int, int]] = {"alexnet": (32, 160)}
BY_BATCH = dict.fromkeys(("vgg16", "resnet50", "coca"), (8, 32, 64, 128, 256))
BY_SIZE = dict.fromkeys(("vgg16", "resnet50", "fcn_resnet50"), (128, 192, 256, 512))

COLUMNS = (
    "net", "batch", "size", "no plan", "planned", "of no plan %", "bound", "added FLOPs %", "predicted off %",
    "tensors",
)  # fmt: skip

NOTES = (
    "MB (2^20) above the start of the step, gradients included. Plans by solver `frontier`: the least peak with at "
    "most one recomputation per op. Weights are random; the loss is the sum of the output, or the model's own.",
    "tensors: 'fake, run and counted': the step is run on tensors without data, its storages are counted. 'fake, "
    "predicted': the trace's own peak, where such a run would use other kernels. 'real': run with data, peaks by "
    "PyTorch's allocator, kernels' scratch included, which the plan knows, too. predicted off %: the "
    "predicted planned peak against that run.",
    "bound: no plan that keeps or recomputes can be below it. size: side of the images, length of the sentences.",
    "inception_v4, seresnet50 and nasnetalarge are timm's, the rest torchvision's; cyclegan, gnmt and coca are written "
    "here after the papers, smaller than those models.",
)


def _found(network: Network) -> dict[str, Any]:
    step = traced(network)
    plan = solve(step, "frontier").plan
    if plan is None:
        raise TypeError("frontier makes plans")
    peaks = [peak_of(network, step, p) for p in (None, plan)]
    return {
        "no plan": mb(peaks[0]),
        "planned": mb(peaks[1]),
        "of no plan %": percent(peaks[1], peaks[0]),
        "bound": mb(plan.lower_bound_bytes),
        "added FLOPs %": percent(plan.recompute_flops, step.total_flops),
        "predicted off %": None if network.device == "fake" else round(100 * (plan.peak_bytes / peaks[1] - 1), 2),
        "bytes": {"no_plan": peaks[0], "planned": peaks[1], "predicted": plan.peak_bytes},
    }


def _work(quick: bool) -> list[list[tuple[str, int, int, str]]]:
    """(net, batch, size, device) of the rows of each table."""
    real = "cuda" if torch.cuda.is_available() else "cpu"
    models = [(n, b, RECIPES[n].size, "meta") for n, b in BATCHES.items() if not quick or n in QUICK]
    models += [(n, *of, real) for n, of in (QUICK_REAL if quick else REAL).items()]
    batches = [(n, b, RECIPES[n].size, "meta") for n, row in BY_BATCH.items() for b in row[:: 3 if quick else 1]]
    sizes = [(n, 16, s, "meta") for n, row in BY_SIZE.items() for s in row[:: 2 if quick else 1]]
    return [models, batches, sizes]


def run(quick: bool, progress: Progress) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """All models, then batch sizes, then image sizes."""
    work = _work(quick)
    total = sum(map(len, work))
    tables: list[list[Row]] = []
    notes: list[str] = list(NOTES)
    for part in work:
        done = sum(map(len, tables))
        rows: list[Row] = []
        for name, batch, size, device in part:
            progress(f"{name} {batch} x {size}", (done + len(rows)) / total)
            network = RECIPES[name].make(batch, size, device)
            row: dict[str, Any] = {"net": name, "batch": batch, "size": size, "tensors": tensors_of(network)}
            try:
                rows.append(row | _found(network))
            except LowtideError as e:
                rows.append(row | {"error": str(e)})
                notes.append(f"{name}, batch {batch}, {row['tensors']}, did not run: {e}")
        tables.append(rows)
    titles = ("Models: peaks in MB", "Batch sizes: peaks in MB", "Image sizes at batch 16: peaks in MB")
    return tuple(Table(t, COLUMNS, tuple(r)) for t, r in zip(titles, tables, strict=True)), tuple(notes)


def draw(result: Result) -> Figure:
    """Fractions per model; peaks over batch and image size."""
    models, batches, sizes = (t.rows for t in result.tables)
    figure, (left, middle, right) = figures.new(3, width=15)
    fake = [r for r in models if r["tensors"].startswith("fake")]
    fraction = {
        "planned": [r["of no plan %"] for r in fake],
        "bound": [100 * r["bound"] / r["no plan"] for r in fake],
    }
    figures.bars(left, [r["net"] for r in fake], fraction, marks=("bound",))
    figures.label(left, "Models", y="peak, % of no plan")
    for axis, rows, key, title, x in (
        (middle, batches, "batch", "Batch sizes", "batch"),
        (right, sizes, "size", "Image sizes, batch 16", "side of the image"),
    ):
        series: dict[str, list[tuple[float, float]]] = {}
        for name in dict.fromkeys(r["net"] for r in rows):
            own = [r for r in rows if r["net"] == name]
            series[name] = [(r[key], r["no plan"]) for r in own]
            series[f"{name}, planned"] = [(r[key], r["planned"]) for r in own]
        figures.lines(axis, series, dashed=[n for n in series if n.endswith("planned")])
        figures.label(axis, title, x, "peak, MB", log2=True)
    return figure


EXPERIMENT = Experiment("5.5", "models", "Other models, batch sizes and image sizes", run, draw)
