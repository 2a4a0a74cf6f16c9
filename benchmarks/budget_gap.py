"""How far plans under a budget are from proven optima: added time against CP-SAT's, on small steps of up to 40 ops."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

import lowtide
from benchmarks.output import Limit, Report
from lowtide.planning.cost import roofline
from lowtide.planning.solve.budget import Ground
from lowtide.planning.step import Step
from tests.costed_steps import costed, exact_s

COLUMNS = ("step", "ops", "budgets", "proven", "mean gap %", "worst gap %", "bound of it %", "exact s")

NOTES = (
    "Added time over the least one in which any op runs again twice at most, proven by CP-SAT; three budgets a step,",
    "15, 40 and 70 % of the way from the least peak to the plain one. bound: how much of the optimum the solver's own",
    "lower bound proves. Below 0: plans in which an op runs more often.",
)

SHARES = (0.15, 0.4, 0.7)
MEAN_LIMIT = 5.0  # percent


def steps() -> Iterator[tuple[str, Step]]:
    """Random steps of 10 to 40 ops with whole seconds, and small real ones with roofline seconds."""
    for seed in range(200, 224):
        n = (12, 16, 20, 24, 32, 40)[seed % 6]
        yield f"random {seed}", costed(seed, n, odd=False)
    for name, (model, x) in _real().items():
        yield name, _whole(roofline(lowtide.trace(model, (x,)), "a100"))


def _whole(step: Step) -> Step:
    """Seconds as whole units of a tenth of a microsecond: CP-SAT counts in integers."""
    return replace(step, seconds=tuple(float(max(1, round(s * 1e7))) for s in step.seconds))


def _real() -> dict[str, tuple[nn.Module, Tensor]]:
    def conv(n: int) -> list[nn.Module]:
        return [nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()] * n

    with torch.device("meta"):
        image = torch.empty(32, 3, 64, 64)
        tokens = torch.empty(16, 64, 128, requires_grad=True)
        block = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
        return {
            "conv, norm, relu x 4": (nn.Sequential(nn.Conv2d(3, 16, 3), *conv(4)), image),
            "conv, norm, relu x 7": (nn.Sequential(nn.Conv2d(3, 16, 3), *conv(7)), image),
            "pyramid": (_pyramid(), image),
            "mlp": (nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(128, 128), nn.GELU())]), tokens),
            "norm and mlp": (nn.Sequential(*[m for _ in range(5) for m in _normed()]), tokens),
            "transformer layer": (block, tokens),
        }  # fmt: skip


def _normed() -> list[nn.Module]:
    return [nn.LayerNorm(128), nn.Linear(128, 128), nn.SiLU()]


def _pyramid() -> nn.Module:
    layers: list[nn.Module] = []
    for a, b in ((3, 16), (16, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 10))


def run(report: Report, seconds: float, every: int = 1) -> None:
    """Rows of all steps, and the limit on the mean over all of their budgets."""
    gaps: list[float] = []
    n_asked = 0
    for name, step in list(steps())[::every]:
        ground = Ground(step)
        low = ground.least_peak(1.0).peak_bytes
        own: list[float] = []
        bounds: list[float] = []
        start = time.process_time()
        for share in SHARES:
            budget = int(low + (ground.baseline_bytes - low) * share)
            n_asked += 1
            best = exact_s(step, budget, 2, seconds)
            if best:
                found = ground.solve(budget)
                own.append(100 * (found.added_s / best - 1))
                bounds.append(100 * found.least_s / best)
        gaps += own
        report.add(
            **{
                "step": name, "ops": step.n_forward, "budgets": len(SHARES), "proven": len(own),
                "mean gap %": sum(own) / len(own) if own else None, "worst gap %": max(own, default=None),
                "bound of it %": sum(bounds) / len(bounds) if bounds else None,
                "exact s": time.process_time() - start,
            }
        )  # fmt: skip
    mean, worst = sum(gaps) / max(1, len(gaps)), max(gaps, default=0.0)
    report.add(**{"step": "all", "budgets": n_asked, "proven": len(gaps), "mean gap %": mean, "worst gap %": worst})
    report.limits.append(Limit("mean gap to the proven optimum, %", mean, MEAN_LIMIT))
    report.limits.append(Limit("budgets without a proven optimum", n_asked - len(gaps), n_asked // 2))
