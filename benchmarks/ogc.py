"""Peaks of fifteen networks under the conditions of Feng & Huang's published table (OGC, CVPR 2021), on fake tensors.

FP32, 224 x 224 (Inception 300), the loss is the sum of the output, the input requires a gradient, every `.grad` is
allocated already; the figure is the peak above the start of the step in MB (2^20). Nothing of a model's size is
allocated: model and inputs are on `meta`, and the plan is also *run* there, under a meter that counts storages.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import torch
from torch import nn

import lowtide
from benchmarks.ogc_published import ROWS, Row
from benchmarks.output import Limit, Report, chosen, parser
from lowtide.acting.meter import StorageMeter

MB = 2**20

COLUMNS = (
    "net", "batch", "regular", "reference", "lowtide", "run", "bound", "ratio", "limit", "added FLOPs %",
    "trace s", "plan s", "published regular", "published OGC", "published time %", "OGC, no reentrance",
)  # fmt: skip

NOTES = (
    "MB (2^20). regular, lowtide: predicted. run: that plan executed on meta tensors, its storages counted.",
    "reference: the plain step on fake tensors, measured before this project; OGC, no reentrance: their plan likewise.",
    "published: from the README of their code, on a GPU, cuDNN's workspace included: not our measurements.",
    "AlexNet's dropout is on: its reference is the step with dropout (3198) and the output held (4); without: 3162.",
    "Inception has no auxiliary head: its reference is that of the main output alone; with both summed it is 2999.",
)


def build(row: Row) -> tuple[nn.Module, torch.Tensor]:
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


def run(row: Row, report: Report, solver: str) -> None:
    model, x = build(row)
    start = time.perf_counter()
    step = lowtide.trace(model, (x,))
    traced = time.perf_counter()
    plan = lowtide.plan(step, solver=solver)
    planned = time.perf_counter()
    peak = plan.peak_bytes / MB
    regular = plan.baseline_peak_bytes / MB
    executed = metered(model, x, plan) / MB
    report.add(
        net=row.name,
        batch=row.batch,
        regular=round(regular),
        reference=row.regular_mb,
        lowtide=round(peak),
        run=round(executed),
        bound=round(plan.lower_bound_bytes / MB),
        ratio=plan.peak_bytes / plan.lower_bound_bytes,
        limit=row.limit_mb,
        **{
            "added FLOPs %": 100 * plan.recompute_flops / step.total_flops,
            "trace s": traced - start,
            "plan s": planned - traced,
            "published regular": row.published_regular_mb,
            "published OGC": row.published_ogc_mb,
            "published time %": round(100 * row.published_time),
            "OGC, no reentrance": row.ogc_mb,
        },
        peak_bytes=plan.peak_bytes,
        baseline_peak_bytes=plan.baseline_peak_bytes,
        lower_bound_bytes=plan.lower_bound_bytes,
        recompute_flops=plan.recompute_flops,
        total_flops=step.total_flops,
        ops=len(step.ops),
        solver=plan.solver,
        status=plan.status,
    )
    off = abs(regular / row.regular_mb - 1) * 100
    report.limits.append(Limit(f"{row.name}: regular off the reference, %", off, 1.0))
    report.limits.append(Limit(f"{row.name}: predicted off the run on meta, %", abs(peak / executed - 1) * 100, 0.5))
    if row.limit_mb is not None:
        report.limits.append(Limit(f"{row.name}: peak in MB", peak, row.limit_mb))


def main(argv: list[str] | None = None) -> int:
    rows = {row.name: row for row in ROWS}
    options = parser(__doc__, list(rows))
    options.add_argument("--solver", default="auto", help="see `lowtide solvers`")
    args = options.parse_args(argv)
    report = Report("ogc", "Peaks under the conditions of Feng & Huang's table", COLUMNS, notes=list(NOTES))
    for name in chosen(args.only, list(rows)):
        run(rows[name], report, args.solver)
    return report.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
