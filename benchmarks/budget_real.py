"""Budgets on this CPU with measured costs: is the measured peak within the budget, and is the measured added time what
was predicted?

One thread, inputs at which activations outweigh parameters but a step takes a second at most. Budgets are spread evenly
from the least peak that a third more time buys to the plain peak. Times are of this process on the processor. Plain and
planned steps take turns; an added time is the median over rounds of the planned step's less the plain step's.
"""

from __future__ import annotations

import gc
import statistics
import time
from typing import Any

import torch

import lowtide
from benchmarks.budget_nets import loss_of
from benchmarks.output import Limit, Report
from lowtide.acting.cost import Cache, Kinds, costed, device_of
from lowtide.planning.judge import judge
from lowtide.planning.plan import Plan
from lowtide.planning.solve.budget import Ground
from lowtide.planning.step import Step
from tests.networks import NETWORKS, Network

MB = 2**20

COLUMNS = (
    "net", "budget", "of plain %", "predicted", "measured", "of budget %", "added s", "measured s", "off %", "tape s",
    "step s",
)  # fmt: skip

NOTES = (
    "MB (2^20) above the start of the step, by the CPU allocator's record, workspace of kernels included.",
    "added s: predicted from each op's time in a call of its own, on this machine. off: how far the measured added",
    "time is from it, in percent of it; plans that are to add less than 3 % of the step are not judged.",
    "tape s: added by a plan that recomputes nothing: the executor's own time, in all measured added times and in no",
    "predicted one.",
)

REAL: dict[str, dict[str, int]] = {
    "resnet18": {"batch": 8, "size": 160},
    "resnet50": {"batch": 4, "size": 128},
    "densenet121": {"batch": 4, "size": 128},
    "unet": {"batch": 4},
    "gpt2": {"batch": 16, "layers": 4, "width": 256},
}
SHARES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.8)

_LEAST_SLOWDOWN = 0.03  # below it, the clock's noise is larger than what is measured


def real(name: str, report: Report, rounds: int) -> None:
    """One network under six budgets: rows and limits."""
    network = NETWORKS[name](**REAL[name])
    step = _measured(network)
    ground = Ground(step)
    low, high = ground.least_peak(0.34).peak_bytes, ground.baseline_bytes
    budgets = [int(low + (high - low) * share) for share in SHARES]
    plans: list[Plan] = []
    for budget in budgets:
        found = ground.solve(budget)
        plans.append(judge(step, found.keep, found.runs, "budget", found.status))
    idle = judge(step, *ground.lazy.lists(ground.lazy.keep_all()), "keep all", "")
    times = _times(network, [idle, *plans], rounds)
    plain_s = statistics.median(times[0])
    tape_s = statistics.median(b - a for a, b in zip(times[0], times[1], strict=True))
    for budget, plan, own in zip(budgets, plans, times[2:], strict=True):
        gc.collect()
        network.model.zero_grad()
        peak = lowtide.measure(lambda plan=plan: _step(network, plan), "cpu").peak_bytes
        added = statistics.median(b - a for a, b in zip(times[0], own, strict=True))
        off = added / plan.added_s - 1 if plan.added_s else 0.0
        report.add(
            **{
                "net": name, "budget": budget / MB, "of plain %": 100 * budget / high,
                "predicted": plan.peak_bytes / MB, "measured": peak / MB, "of budget %": 100 * peak / budget,
                "added s": plan.added_s, "measured s": added, "off %": 100 * off,
                "tape s": tape_s, "step s": plain_s, "predicted step s": step.total_seconds, "status": plan.status,
            }
        )  # fmt: skip
        where = f"{name}, {budget / MB:.0f} MB"
        report.limits.append(Limit(f"{where}: measured peak over budget", peak / budget, 1.02))
        if plan.slowdown > _LEAST_SLOWDOWN:
            report.limits.append(Limit(f"{where}: added time off", abs(off), 0.25))


def _measured(network: Network) -> Step:
    """The step with times of its ops on this thread; nothing is read from or left in the cache of costs."""
    kinds = Kinds()
    step = lowtide.trace(network.model, network.args, network.kwargs, loss=network.loss, observe=kinds)
    return costed(step, kinds, device_of("cpu"), Cache(None))


def _times(network: Network, plans: list[Plan], rounds: int) -> list[list[float]]:
    """Processor seconds per round: of the plain step, and of the step under each plan, in turns."""
    times: list[list[float]] = [[] for _ in range(len(plans) + 1)]
    for r in range(rounds + 1):
        for own, plan in zip(times, [None, *plans], strict=True):
            network.model.zero_grad()
            start = time.process_time()
            _step(network, plan)
            if r:  # the first round warms up
                own.append(time.process_time() - start)
    return times


def _step(network: Network, plan: Plan | None) -> Any:
    if plan is None:
        loss = loss_of(network)
    else:
        with lowtide.remat(plan):
            loss = loss_of(network)
    loss.backward()


def run(names: list[str], report: Report, rounds: int) -> None:
    """Some networks of `REAL`, on one thread."""
    torch.set_num_threads(1)
    for name in names:
        real(name, report, rounds)
