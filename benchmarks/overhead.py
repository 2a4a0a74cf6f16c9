"""Host time per op: what running under a plan costs where the tensors are so small that nothing else shows.

Three ways in turn, in one process: plain, under a plan that keeps everything, and under the least-peak plan. Medians of
processor time of the one thread that works, so that a busy machine changes little. The forward columns tell what
watching and recording add to an op; backward under the least-peak plan runs the recomputed ops besides.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

import lowtide
from benchmarks.output import Limit, Report, chosen, parser
from lowtide.planning.step import Phase

COLUMNS = (
    "step", "ops", "recomputed", "forward plain us/op", "keep all +", "planned +", "backward plain us/op",
    "keep all + ", "planned + ", "by recomputing",
)  # fmt: skip


class Chain(nn.Module):
    """`n` elementwise ops in a row."""

    def __init__(self, n: int = 2000) -> None:
        super().__init__()
        self.n = n
        self.w = nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.n // 2):
            x = torch.tanh(x * self.w)
        return x


class Mlp(nn.Sequential):
    """Linear, norm, activation: modules, as most people write them."""

    def __init__(self, depth: int = 200, width: int = 16) -> None:
        super().__init__(*(m for _ in range(depth) for m in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())))


class Gru(nn.Module):
    """One cell called `n` times: memory is in the time axis."""

    def __init__(self, n: int = 100, width: int = 32) -> None:
        super().__init__()
        self.n, self.x, self.h = n, nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros_like(x)
        for _ in range(self.n):
            a, b, c = (self.x(x) + self.h(h)).chunk(3, -1)
            h = torch.sigmoid(a) * h + torch.sigmoid(b) * torch.tanh(c)
        return h


STEPS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "2,000 ops in a row": lambda: (Chain(), torch.randn(16)),
    "4,000 ops in a row": lambda: (Chain(4000), torch.randn(16)),
    "MLP of 200 layers": lambda: (Mlp(), torch.randn(4, 16)),
    "GRU over 100 steps": lambda: (Gru(), torch.randn(16, 32)),
    "GRU over 200 steps": lambda: (Gru(200), torch.randn(16, 32)),
}

# Of these the second is twice the first: an op must not cost more there.
DOUBLED = [("2,000 ops in a row", "4,000 ops in a row"), ("GRU over 100 steps", "GRU over 200 steps")]
LINEAR = 1.15  # what an op of the second may cost, of one of the first


def once(model: nn.Module, x: Tensor, plan: lowtide.Plan | None) -> tuple[float, float]:
    """Seconds of forward and of backward."""
    model.zero_grad()
    start = time.thread_time()
    with lowtide.remat(plan) if plan is not None else nullcontext():
        loss = model(x).sum()
    middle = time.thread_time()
    loss.backward()
    return middle - start, time.thread_time() - middle


def run(name: str, report: Report, repeat: int) -> None:
    model, x = STEPS[name]()
    step = lowtide.trace(model, (x,))
    least = lowtide.plan(step)
    ways: dict[str, lowtide.Plan | None] = {
        "plain": None,
        "keep all": lowtide.plan(step, solver="keep_all"),
        "planned": least,
    }
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for plan in ways.values():
        once(model, x, plan)
    gc.collect()
    gc.disable()
    for _ in range(repeat):  # in turn, so that a busy machine is busy for all
        for way, plan in ways.items():
            found[way].append(once(model, x, plan))
    gc.enable()
    n_forward = step.n_forward
    n_backward = sum(op.phase is Phase.BACKWARD for op in step.ops)
    forward = {way: statistics.median(f for f, _ in times) for way, times in found.items()}
    backward = {way: statistics.median(b for _, b in times) for way, times in found.items()}

    def per_op(seconds: float, ops: int) -> float:
        return 1e6 * seconds / max(ops, 1)

    row: dict[str, Any] = {
        "step": name,
        "ops": len(step.ops),
        "recomputed": least.recompute_ops,
        "forward plain us/op": per_op(forward["plain"], n_forward),
        "keep all +": per_op(forward["keep all"] - forward["plain"], n_forward),
        "planned +": per_op(forward["planned"] - forward["plain"], n_forward),
        "backward plain us/op": per_op(backward["plain"], n_backward),
        "keep all + ": per_op(backward["keep all"] - backward["plain"], n_backward),
        "planned + ": per_op(backward["planned"] - backward["plain"], n_backward),
        # per recomputed op, against what a forward op takes
        "by recomputing": per_op(backward["planned"] - backward["plain"], least.recompute_ops) if least.runs else None,
        "planned step us/op": per_op(forward["planned"] + backward["planned"], len(step.ops) + least.recompute_ops),
        "forward_s": forward,
        "backward_s": backward,
        "repeat": repeat,
    }
    report.add(**row)
    for way in ("keep all +", "planned +"):
        report.limits.append(Limit(f"{name}: forward, {way.removesuffix(' +')}, added us an op", row[way], 15.0))


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__, list(STEPS))
    options.add_argument("--repeat", type=int, default=15, metavar="N", help="runs of each way (default 15)")
    args = options.parse_args(argv)
    torch.set_num_threads(1)
    report = Report("overhead", "Host time of a step with small tensors, in us an op", COLUMNS)
    report.notes.append("by recomputing: added time of backward per recomputed op.")
    report.notes.append("Real steps, and their backward: python -m benchmarks.backward.")
    for name in chosen(args.only, list(STEPS)):
        run(name, report, args.repeat)
    cost = {row["step"]: row["planned step us/op"] for row in report.rows}
    for short, long in DOUBLED:
        if short in cost and long in cost:
            what = f"{long}: a planned step, in us an op that runs, of {short}"
            report.limits.append(Limit(what, cost[long] / cost[short], LINEAR))
    return report.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
