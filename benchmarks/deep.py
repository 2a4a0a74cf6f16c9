"""How low the peak can go: the thesis' class, one more forward, half a step more, and no limit, beside the bound.

The nets and conditions are those of `benchmarks.ogc` (MB of 2^20 above the start of the step). added: FLOPs added, in
percent of the plain step's. run: plans executed on meta, the larger distance from what was predicted of two. With
`--real`, some nets run on the CPU for real instead: gradients compared bit by bit, peaks by storages and by the
allocator's record.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import lowtide
from benchmarks.ogc import build, metered
from benchmarks.ogc_published import ROWS, Row
from benchmarks.output import Limit, Report, chosen, parser
from lowtide.acting.meter import StorageMeter
from lowtide.planning.solve.on_steps import Deep, Frontier
from lowtide.planning.solve.solver import Solver
from tests.networks import NETWORKS, Network

MB = 2**20

SOLVERS: dict[str, Solver] = {
    "thesis": Frontier(),
    "default": Deep(),
    "x1.5": Deep(max_slowdown=0.5),
    "no limit": Deep(max_slowdown=None),
}

COLUMNS = (
    "net", "batch", "regular", "bound",
    *(f"{name}{what}" for name in SOLVERS for what in ("", " ratio", " added %", " s")), "run off %",
)  # fmt: skip

LIMITS: dict[str, dict[str, float]] = {
    "default": {"resnet50": 1300, "resnet101": 700, "resnet152": 390, "densenet121": 500, "inception_v3": 700},
    "no limit": {"resnet50": 1000, "resnet101": 500, "resnet152": 250, "densenet121": 450},
}
MEAN_LIMIT = 1.25
SECONDS_LIMIT = {"resnet50": 15.0, "densenet201": 120.0}


def run(row: Row, report: Report) -> None:
    model, x = build(row)
    step = lowtide.trace(model, (x,))
    line: dict[str, Any] = {"net": row.name, "batch": row.batch}
    off = 0.0
    for name, solver in SOLVERS.items():
        start = time.perf_counter()
        plan = lowtide.plan(step, solver=solver)
        seconds = time.perf_counter() - start
        line["regular"] = round(plan.baseline_peak_bytes / MB)
        line["bound"] = round(plan.lower_bound_bytes / MB)
        line[name] = round(plan.peak_bytes / MB)
        line[f"{name} ratio"] = plan.peak_bytes / plan.lower_bound_bytes
        line[f"{name} added %"] = 100 * plan.recompute_flops / step.total_flops
        line[f"{name} s"] = seconds
        line[f"{name} runs"] = plan.recompute_ops
        line[f"{name} status"] = plan.status
        if name in LIMITS:
            off = max(off, abs(100 * (metered(model, x, plan) / plan.peak_bytes - 1)))
            limit = LIMITS[name].get(row.name)
            if limit is not None:
                report.limits.append(Limit(f"{row.name}: {name}, MB", plan.peak_bytes / MB, limit))
        if name == "no limit" and row.name in SECONDS_LIMIT:
            report.limits.append(Limit(f"{row.name}: {name}, seconds", seconds, SECONDS_LIMIT[row.name]))
    line["run off %"] = off
    report.add(**line)
    report.limits.append(Limit(f"{row.name}: predicted off the run on meta, %", off, 0.5))


def mean_row(report: Report) -> None:
    line: dict[str, Any] = {"net": "geometric mean"}
    for name in SOLVERS:
        ratios = [row[f"{name} ratio"] for row in report.rows]
        line[f"{name} ratio"] = math.exp(sum(map(math.log, ratios)) / len(ratios))
    report.add(**line)
    if len(report.rows) > len(ROWS):
        report.limits.append(Limit("no limit: geometric mean of peak / bound", line["no limit ratio"], MEAN_LIMIT))


REAL_COLUMNS = (
    "net", "plan", "identical", "plain", "planned", "of plain", "predicted off %", "plain, allocator",
    "planned, allocator", "of plain, allocator", "limit", "added FLOPs %",
)  # fmt: skip


def _image_net(name: str, batch: int, size: int = 224) -> Callable[[], Network]:
    def make() -> Network:
        import torchvision

        torch.manual_seed(0)
        model: nn.Module = getattr(torchvision.models, name)(weights=None).train()
        return Network(model, (torch.randn(batch, 3, size, size, requires_grad=True),), {}, torch.sum)

    return make


# name -> network, largest fraction of the plain step's peak
REAL: dict[str, tuple[Callable[[], Network], float | None]] = {
    "resnet50": (_image_net("resnet50", 8), 0.22),
    "resnet18": (_image_net("resnet18", 16), 0.50),
    "vgg16": (_image_net("vgg16", 8), 0.45),
    "gpt2": (lambda: NETWORKS["gpt2"](batch=8, layers=12, length=128, width=256), 0.15),
    "densenet121": (_image_net("densenet121", 4, 160), None),
    "unet": (lambda: NETWORKS["unet"](batch=4), None),
}


def run_real(name: str, report: Report, solvers: dict[str, Solver]) -> None:
    make, limit = REAL[name]
    network = make()
    step = lowtide.trace(network.model, network.args, network.kwargs, loss=network.loss)
    for p in network.model.parameters():
        p.grad = torch.zeros_like(p)
    again = lowtide.trace(network.model, network.args, network.kwargs, loss=network.loss)
    for title, solver in solvers.items():
        plan = lowtide.plan(step, solver=solver)
        verdict = lowtide.verify(network.model, network.args, network.kwargs, loss=network.loss, plan=plan)
        # The fraction is that of a step whose gradients are allocated already, as in the table of rivals.
        plan = lowtide.plan(again, solver=solver)
        plain, planned = (_storages(network, p) for p in (None, plan))
        report.add(
            **{
                "net": name,
                "plan": title,
                "identical": verdict.ok,
                "plain": plain / MB,
                "planned": planned / MB,
                "of plain": planned / plain,
                "predicted off %": 100 * (plan.peak_bytes / planned - 1),
                "plain, allocator": verdict.baseline_peak_bytes / MB,
                "planned, allocator": verdict.peak_bytes / MB,
                "of plain, allocator": verdict.peak_bytes / verdict.baseline_peak_bytes,
                "limit": limit,
                "added FLOPs %": 100 * plan.recompute_flops / step.total_flops,
                "seconds": verdict.seconds,
                "baseline_seconds": verdict.baseline_seconds,
            }
        )
        report.limits.append(Limit(f"{name}, {title}: differences", len(verdict.differences), 0))
        report.limits.append(
            Limit(f"{name}, {title}: predicted off storages, %", 100 * abs(plan.peak_bytes / planned - 1), 0.5)
        )
        if limit is not None and title == "no limit":
            report.limits.append(Limit(f"{name}: least peak, of plain", planned / plain, limit))


def _storages(network: Network, plan: lowtide.Plan | None) -> int:
    from benchmarks.peaks import step_of

    with StorageMeter() as meter:
        step_of(network, plan=plan)()
    return meter.peak_bytes


def main(argv: list[str] | None = None) -> int:
    rows = {row.name: row for row in ROWS}
    options = parser(__doc__, [*rows, *(n for n in REAL if n not in rows)])
    options.add_argument("--real", action="store_true", help="on the CPU, with the default limit and without")
    args = options.parse_args(argv)
    warnings.filterwarnings("ignore", category=FutureWarning)
    if args.real:
        report = Report("deep_real", "Least executed peaks, in MB (2^20) above the start of the step", REAL_COLUMNS)
        for name in chosen(args.only, list(REAL)):
            run_real(name, report, {k: SOLVERS[k] for k in ("default", "no limit")})
        return report.finish(args.output)
    report = Report("deep", "Least peaks under limits on added FLOPs, in MB (2^20)", COLUMNS)
    for name in chosen(args.only, list(rows)):
        run(rows[name], report)
    mean_row(report)
    return report.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
