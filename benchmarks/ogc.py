"""Peaks of fifteen networks under the conditions of Feng & Huang's published table (OGC, CVPR 2021), on fake tensors.

FP32, 224 x 224 (Inception 300), the loss is the sum of the output, the input requires a gradient, every `.grad` is
allocated already; the figure is the peak above the start of the step in MB (2^20). Nothing of a model's size is
allocated: model and inputs are on `meta`, and plans are also *run* there, under a meter that counts storages.

Each plan has its peak, the FLOPs that it adds in percent of the plain step's, and the seconds that planning took.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from typing import Any

import torch
from torch import nn

import lowtide
from benchmarks.output import Limit, Report, chosen, parser
from lowtide.acting.meter import StorageMeter
from lowtide.bench.published import TABLE, Published
from lowtide.planning.solve.on_steps import Deep, Frontier

MB = 2**20

# What each plan's column is called, and how the plan is asked for.
PLANS: dict[str, dict[str, Any]] = {
    "Feng & Huang": {"solver": "feng_huang"},
    "thesis": {"solver": Frontier()},
    "default": {"solver": Deep()},
    "x1.5": {"solver": Deep(max_slowdown=0.5)},
    "no limit": {"solver": Deep(max_slowdown=None)},
    "with codes": {"solver": "auto"},
}

COLUMNS = (
    "net", "batch", "regular", *PLANS, "bound", "default / bound", "no limit / bound", "run off %", "published regular",
    "published OGC", "OGC, no reentrance",
)  # fmt: skip

# MB that the plans promise: the thesis' class at most Feng & Huang's own plans, the others what is in reach of them.
LIMITS: dict[str, dict[str, float]] = {
    "thesis": {row.name: row.own_plan_mb for row in TABLE if row.own_plan_mb is not None},
    "default": {"alexnet": 2275, "vgg16": 2400, "resnet18": 2400, "resnet34": 1570}
    | {"resnet50": 1300, "resnet101": 700, "resnet152": 390, "densenet121": 500, "inception_v3": 700},
    "no limit": {"resnet50": 1000, "resnet101": 500, "resnet152": 250, "densenet121": 450},
}
MEAN_LIMIT = 1.25  # geometric mean of peak / bound without a limit on work
SECONDS_LIMIT = {"resnet50": 15.0, "densenet201": 120.0}  # of planning without a limit on work

NOTES = (
    "MB (2^20), then added FLOPs in percent, then seconds of planning. regular: predicted, without a plan.",
    "Feng & Huang: this project's implementation of their algorithm, on the same executor. torchvision's DenseNets",
    "hand lists of features on, so that their graph has no split vertex; `lowtide bench thesis --only 5.4` has the",
    "form that it can take apart. thesis: at most one recomputation of an op. default: one more forward at most.",
    "x1.5: half a step more at most. no limit: whatever work it takes. with codes: what `lowtide.plan` gives,",
    "codes in the place of saved tensors where they help, and of equal peaks the least work.",
    "bound: no plan without codes is below it.",
    "run off: plans executed on meta tensors, storages counted: the largest distance from what was predicted.",
    "published: from the README of their code, on a GPU, cuDNN's workspace included: not our measurements.",
    "OGC, no reentrance: what their own program planned, run on fake tensors in a trial before this project.",
    "AlexNet's dropout is on. Inception has no auxiliary head.",
)


def build(row: Published) -> tuple[nn.Module, torch.Tensor]:
    """Model and input on `meta`, with gradients allocated."""
    import torchvision

    options: dict[str, Any] = {"aux_logits": False, "init_weights": False} if row.name == "inception_v3" else {}
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model: nn.Module = getattr(torchvision.models, row.name)(weights=None, **options).train()
        x = torch.empty(row.batch, 3, row.size, row.size, requires_grad=True)
    if row.name != "alexnet":
        for m in model.modules():
            if isinstance(m, nn.Dropout):
                m.eval()
    for p in [*model.parameters(), x]:
        p.grad = torch.empty_like(p)
    return model, x


def metered(model: nn.Module, x: torch.Tensor, plan: lowtide.Plan) -> int:
    """The plan's step run for real on `meta`: most bytes of storages alive at one time."""
    with StorageMeter() as meter:
        with lowtide.remat(plan):
            loss = model(x).sum()
        loss.backward()
    return meter.peak_bytes


def run(row: Published, report: Report) -> None:
    model, x = build(row)
    start = time.perf_counter()
    step = lowtide.trace(model, (x,))
    line: dict[str, Any] = {"net": row.name, "batch": row.batch, "trace_s": time.perf_counter() - start}
    off = 0.0
    for name, how in PLANS.items():
        start = time.perf_counter()
        plan = lowtide.plan(step, **how)
        seconds = time.perf_counter() - start
        peak = plan.peak_bytes / MB
        added = 100 * plan.recompute_flops / step.total_flops
        line[name] = f"{peak:.0f} +{added:.1f}% {seconds:.1f}s"
        line[f"{name} / bound"] = plan.peak_bytes / plan.lower_bound_bytes
        line[f"{name} plan"] = {
            "peak_bytes": plan.peak_bytes,
            "recompute_flops": plan.recompute_flops,
            "recompute_ops": plan.recompute_ops,
            "seconds": seconds,
            "solver": plan.solver,
            "status": plan.status,
        }
        if name != "x1.5":
            off = max(off, abs(100 * (metered(model, x, plan) / plan.peak_bytes - 1)))
        limit = LIMITS.get(name, {}).get(row.name)
        if limit is not None:
            report.limits.append(Limit(f"{row.name}: {name}, MB", round(peak), limit))
        if name == "no limit" and row.name in SECONDS_LIMIT:
            report.limits.append(Limit(f"{row.name}: {name}, seconds", seconds, SECONDS_LIMIT[row.name]))
        line["regular"] = round(plan.baseline_peak_bytes / MB)
        if name == "no limit":  # with the plan that comes closest
            line["bound"] = round(plan.lower_bound_bytes / MB)
    line |= {
        "run off %": off,
        "published regular": row.regular_mb,
        "published OGC": row.ogc_mb,
        "OGC, no reentrance": row.own_plan_mb,
        "reference_regular": row.fake_regular_mb,
        "total_flops": step.total_flops,
        "ops": len(step.ops),
    }
    report.add(**line)
    report.limits.append(
        Limit(f"{row.name}: regular off the reference, %", 100 * abs(line["regular"] / row.fake_regular_mb - 1), 1.0)
    )
    report.limits.append(Limit(f"{row.name}: predicted off the run on meta, %", off, 0.5))


def mean_row(report: Report) -> None:
    """The last row: geometric means of peak / bound. Promised only for the whole table."""
    line: dict[str, Any] = {"net": "geometric mean"}
    for name in ("default", "no limit"):
        ratios = [row[f"{name} / bound"] for row in report.rows]
        line[f"{name} / bound"] = math.exp(sum(map(math.log, ratios)) / len(ratios))
    if len(report.rows) == len(TABLE):
        report.limits.append(Limit("no limit: geometric mean of peak / bound", line["no limit / bound"], MEAN_LIMIT))
    report.add(**line)


def main(argv: list[str] | None = None) -> int:
    rows = {row.name: row for row in TABLE}
    args = parser(__doc__, list(rows)).parse_args(argv)
    report = Report("ogc", "Peaks under the conditions of Feng & Huang's table", COLUMNS, notes=list(NOTES))
    for name in chosen(args.only, list(rows)):
        run(rows[name], report)
    mean_row(report)
    return report.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
