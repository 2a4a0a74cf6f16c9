"""Least added work under a budget, beside `torch.compile`'s `activation_memory_budget`, `checkpoint_sequential`, and
every block wrapped by hand, all run in this command on fake CPU tensors.

For each of a rival's points a plan is asked for whose peak is not above the rival's, with no more added FLOPs and no
more added seconds. FP32, the input requires a gradient where it can, every `.grad` is allocated. One kind of peak for
all: storages that are alive at one time in the step's ops, counted by one meter, MB of 2^20 above the step's start.
Added FLOPs and seconds are in percent of the plain step's; seconds are those of one roofline for both sides, and a
rival's are counted from its own run without recomputation.

Then ResNet-50, batch 8, at the peaks of a published curve, and small steps against proven optima. `--real` instead:
five networks on this CPU with measured costs: measured peak against the budget, measured added time against predicted.
"""

from __future__ import annotations

import itertools
import logging
import sys
import time
import warnings
from dataclasses import replace
from typing import Any

import lowtide
from benchmarks import budget_gap, budget_real
from benchmarks.budget_nets import ATTENTION, NETS, image_net, loss_of
from benchmarks.budget_rivals import Point, rivals
from benchmarks.output import Limit, Report, chosen, parser
from lowtide.acting.meter import StorageMeter
from lowtide.planning.cost import Device, device_named, roofline
from lowtide.planning.judge import judge
from lowtide.planning.plan import Plan
from lowtide.planning.solve.budget import Ground
from lowtide.planning.step import Step

MB = 2**20

COLUMNS = (
    "net", "rival", "peak", "FLOPs +%", "time +%", "lowtide", "FLOPs +% ", "time +% ", "run", "of rival %", "plan s",
    "",
)  # fmt: skip

NOTES = (
    "run: the plan executed on meta tensors under the same meter (not where attention differs there).",
    "torch.compile runs as backend='aot_eager' does, op by op; kernels that fuse would make its added seconds less.",
    "plan s: processor seconds; grounds that several budgets share are counted where they are first needed.",
)

PUBLISHED_COLUMNS = (
    "net", "published peak", "published time +%", "lowtide", "time +%", "FLOPs +%", "of published time %", "plan s", "",
)  # fmt: skip

PUBLISHED_NOTES = (
    "published: rockmate, rotor on blocks, executed peak and the time that it predicts itself, in a run before this",
    "project, not in this command; its plain step had 659 MB.",
)

# ResNet-50, batch 8: peak in MB, and time over the plain step's.
PUBLISHED = ((578, 1.085), (480, 1.118), (378, 1.165), (284, 1.211), (202, 1.326))


class Planner:
    """Plans for one step that are to beat a point in FLOPs and seconds at once."""

    def __init__(self, step: Step, device: Device) -> None:
        self.step = roofline(step, device)
        self.rate = device.rate(step.ops[0])
        # Seconds count, and FLOPs more and more: a step with blended costs per weight.
        self.grounds: dict[float, Ground] = {}

    def ground(self, weight: float) -> Ground:
        if weight not in self.grounds:
            blend = tuple(
                s + weight * op.flops / self.rate for s, op in zip(self.step.seconds, self.step.ops, strict=True)
            )
            self.grounds[weight] = Ground(replace(self.step, seconds=blend))
        return self.grounds[weight]

    def under(self, peak_bytes: int, flops: float, seconds: float) -> Plan:
        """The plan that keeps best to a peak of `peak_bytes`, added FLOPs and seconds; with a lower peak if that costs
        nothing more."""
        best: tuple[float, float, Plan] | None = None
        for weight, most in itertools.product((0.0, 10.0, 100.0, 1.0, 30.0, 3.0), (peak_bytes - 1, peak_bytes)):
            found = self.ground(weight).solve(most)
            plan = judge(self.step, found.keep, found.runs, "budget", found.status)
            over = max(0.0, plan.recompute_flops - flops) / max(1, self.step.total_flops)
            over += max(0.0, plan.added_s - seconds) / self.step.total_seconds
            over += max(0, plan.peak_bytes - peak_bytes) / peak_bytes
            if best is None or (over, plan.added_s) < best[:2]:
                best = (over, plan.added_s, plan)
            if over <= 1e-9:  # sums of seconds in another order
                break
        assert best is not None
        return best[2]


def run_bytes(name: str, plan: Plan) -> int | None:
    """The plan's step run on `meta`: most bytes of storages alive at one time."""
    if name in ATTENTION:
        return None
    network = NETS[name]()
    with StorageMeter() as meter:
        with lowtide.remat(plan):
            loss = loss_of(network)
        loss.backward()
    return meter.peak_bytes


def compare(name: str, report: Report, device: Device, quick: bool) -> None:
    """One network: rows and limits."""
    network = NETS[name]()
    step = lowtide.trace(network.model, network.args, network.kwargs, loss=network.loss)
    planner = Planner(step, device)
    for rival, plain in rivals(name, NETS[name], device, quick):
        start = time.process_time()
        plan = planner.under(rival.peak_bytes, rival.flops - plain.flops, rival.seconds - plain.seconds)
        _row(name, report, planner.step, rival, plain, plan, time.process_time() - start)


def _row(name: str, report: Report, step: Step, rival: Point, plain: Point, plan: Plan, spent: float) -> None:
    run = run_bytes(name, plan)
    row: dict[str, Any] = {
        "net": name,
        "rival": rival.name,
        "peak": rival.peak_bytes / MB,
        "FLOPs +%": 100 * (rival.flops - plain.flops) / step.total_flops,
        "time +%": 100 * (rival.seconds - plain.seconds) / step.total_seconds,
        "lowtide": plan.peak_bytes / MB,
        "FLOPs +% ": 100 * plan.recompute_flops / step.total_flops,
        "time +% ": 100 * plan.slowdown,
        "run": None if run is None else run / MB,
        "of rival %": 100 * plan.peak_bytes / rival.peak_bytes,
        "plan s": spent,
        "status": plan.status,
    }
    limits = [
        Limit(f"{name}: peak in bytes, against {rival.name}", plan.peak_bytes, rival.peak_bytes),
        Limit(f"{name}: FLOPs +%, against {rival.name}", row["FLOPs +% "], row["FLOPs +%"] + 1e-7),
        Limit(f"{name}: time +%, against {rival.name}", row["time +% "], row["time +%"] + 1e-7),
    ]
    if run is not None:
        limits.append(Limit(f"{name}: bytes of the peak as run, off the predicted", abs(run - plan.peak_bytes), 0))
    _add(report, row, limits)


def _add(report: Report, row: dict[str, Any], limits: list[Limit]) -> None:
    """A row that says whether its limits were kept."""
    report.add(**row, **{"": "PASS" if all(x.kept for x in limits) else "FAIL"})
    report.limits += limits


def published(report: Report, device: Device) -> None:
    """At most two thirds of the published added time at each peak, and a lower least peak for its most time."""
    network = image_net("resnet50", 8)
    step = lowtide.trace(network.model, network.args)
    ground = Ground(roofline(step, device))
    report.notes.append(f"The plain step has {ground.baseline_bytes / MB:.0f} MB here; the last row is the least peak.")

    def row(peak: int, factor: float, plan: Plan, spent: float, limits: list[Limit]) -> None:
        line = {
            "net": "resnet50, batch 8", "published peak": peak, "published time +%": 100 * (factor - 1),
            "lowtide": plan.peak_bytes / MB, "time +%": 100 * plan.slowdown,
            "FLOPs +%": 100 * plan.recompute_flops / step.total_flops,
            "of published time %": 100 * plan.slowdown / (factor - 1), "plan s": spent, "status": plan.status,
        }  # fmt: skip
        _add(report, line, limits)

    for peak, factor in PUBLISHED:
        start = time.process_time()
        found = ground.solve(peak * MB)
        plan = judge(ground.step, found.keep, found.runs, "budget", found.status)
        limits = [
            Limit(f"resnet50 b8 at {peak} MB: added time", plan.slowdown, (factor - 1) * 2 / 3),
            Limit(f"resnet50 b8 at {peak} MB: peak in bytes", plan.peak_bytes, peak * MB),
        ]
        row(peak, factor, plan, time.process_time() - start, limits)
    peak, factor = PUBLISHED[-1]
    start = time.process_time()
    least = ground.least_peak(factor - 1)
    plan = judge(ground.step, least.keep, least.runs, "budget", least.status)
    limits = [
        Limit(f"resnet50 b8: least peak at x{factor}, bytes", plan.peak_bytes, peak * MB - 1),
        Limit(f"resnet50 b8: added time of the least peak at x{factor}", plan.slowdown, factor - 1),
    ]
    row(peak, factor, plan, time.process_time() - start, limits)


def main(argv: list[str] | None = None) -> int:
    parts = {"published": "the published curve", "gap": "small steps against proven optima"}
    options = parser(__doc__, [*NETS, *parts])
    options.add_argument("--device", default="a100", help="whose roofline seconds are (default a100)")
    options.add_argument("--quick", action="store_true", help="few of the rivals' settings, few small steps")
    options.add_argument(
        "--real", action="store_true", help="only the runs on this CPU; --only picks from other networks"
    )
    options.add_argument("--rounds", type=int, default=7, help="timed rounds with --real (default 7)")
    args = options.parse_args(argv)
    warnings.filterwarnings("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    if args.real:
        title = "Budgets on this CPU, costs measured"
        report = Report("budget_real", title, budget_real.COLUMNS, notes=list(budget_real.NOTES))
        budget_real.run(chosen(args.only, list(budget_real.REAL)), report, args.rounds)
        return report.finish(args.output)
    device = device_named(args.device)
    names = chosen(args.only, [*NETS, *parts])
    title = f"Least added work under a budget, beside rivals (roofline of {device.name})"
    first = Report("budget", title, COLUMNS, notes=list(NOTES))
    for name in (n for n in names if n in NETS):
        compare(name, first, device, args.quick)
    curve = Report("budget_published", "Beside a published curve", PUBLISHED_COLUMNS, notes=list(PUBLISHED_NOTES))
    if "published" in names:
        published(curve, device_named("cpu"))
    gap = Report("budget_gap", "Beside proven optima", budget_gap.COLUMNS, notes=list(budget_gap.NOTES))
    if "gap" in names:
        budget_gap.run(gap, 20.0, every=5 if args.quick else 1)
    return max([report.finish(_file(args.output, report)) for report in (first, curve, gap) if report.rows])


def _file(output: str | None, report: Report) -> str | None:
    """A file per table: `out.json`, `out.budget_gap.json`."""
    if output is None or report.name == "budget":
        return output
    stem = output.removesuffix(".json")
    return f"{stem}.{report.name}.json"


if __name__ == "__main__":
    sys.exit(main())
