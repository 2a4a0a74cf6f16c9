"""5.3: against the O(sqrt n) algorithm; the first and the revised objective."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from lowtide.bench import figures
from lowtide.bench.models import RECIPES
from lowtide.bench.models.sequential import dropout_off
from lowtide.bench.peaks import mb, peak_of, percent, tensors_of, traced
from lowtide.bench.result import Experiment, Progress, Result, Row, Table
from lowtide.planning.chain import Chain
from lowtide.planning.reduce import reduce
from lowtide.planning.solve import Solution, solve
from lowtide.planning.step import Step

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAST_WORK = "linear, least work"

SIZES: dict[str, tuple[int, int]] = {
    "alexnet": (256, 224),
    "vgg16": (64, 224),
    "vgg19": (64, 224),
    "resnet18": (128, 224),
    "resnet50": (64, 224),
    "resnet101": (32, 224),
    "wide_resnet50_2": (32, 224),
    "densenet121": (32, 224),
    "inception_v3": (32, 299),
    "efficientnet_b0": (64, 224),
    "coca": (32, 224),
}
QUICK = ("alexnet", "vgg16", "resnet50", "densenet121")
SOLVERS = ("keep_all", "sqrt", "greedy", "cubic", "linear", LEAST_WORK)
UNIT_STAGES = (4, 16, 64, 144, 256, 576, 1024)

COLUMNS = (
    "net", "batch", "modules", "solver", "checkpoints", "first objective", "revised objective", "peak of the step",
    "run", "of keep_all %", "added FLOPs %", "tensors",
)  # fmt: skip
UNIT = ("stages", "sqrt", "greedy", "cubic", "linear", "2 sqrt(n)", "sqrt(2n)")

NOTES = (
    "MB (2^20) above the start of the step. Chains of leaf modules in the order of their calls, on fake tensors, "
    "dropout off.",
    "first objective: all checkpoints stand during every segment (`cubic` minimises it). revised objective: the "
    "checkpoints of finished segments are freed (`linear` minimises it). peak of the step: the checkpoints lifted to a "
    "plan of the traced step and simulated. run: that plan run on tensors without data, its storages counted; for coca "
    "the prediction once more, since such a run would use other kernels.",
    "linear: of the checkpoint sets of least peak by the formula that are at hand, the one that is best on the step. "
    "linear, least work: among the sets of that peak, one that recomputes least.",
    "Unit chains: n stages of one unit each that save their input alone; peaks under the revised objective.",
)


def run(quick: bool, progress: Progress) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """Each network under each solver, and unit chains."""
    sizes = {n: s for n, s in SIZES.items() if not quick or n in QUICK}
    rows: list[Row] = []
    for k, (name, (batch, size)) in enumerate(sizes.items()):
        progress(name, k / len(sizes))
        network = RECIPES[name].make(batch, size)
        dropout_off(network.model)
        step = traced(network)
        chain = reduce(step, "module")
        plain = peak_of(network, step)
        for solver in SOLVERS:
            found = _solved(step, solver)
            checkpoints = found.checkpoints
            ran = peak_of(network, step, found.plan)
            rows.append({
                "net": name,
                "batch": batch,
                "modules": chain.n,
                "solver": solver,
                "checkpoints": len(checkpoints),
                "first objective": mb(chain.first_peak_bytes(checkpoints)),
                "revised objective": mb(chain.peak_bytes(checkpoints)),
                "peak of the step": mb(found.peak_bytes),
                "run": mb(ran),
                "of keep_all %": percent(ran, plain),
                "added FLOPs %": percent(found.recompute_cost, step.total_flops),
                "tensors": tensors_of(network),
            })  # fmt: skip
    units = [_unit(n) for n in UNIT_STAGES]
    return (
        Table("Checkpoints on the chain of modules, in MB", COLUMNS, tuple(rows)),
        Table("Chains of equal stages, in units", UNIT, tuple(units)),
    ), NOTES


def _solved(step: Step, solver: str) -> Solution:
    if solver != LEAST_WORK:
        return solve(step, solver)
    return solve(step, "linear", budget=max(1, int(solve(step, "linear").stats["chain_peak_bytes"])))


def _unit(n: int) -> Row:
    chain = Chain.from_arrays(a=[0] + [1] * n)
    peaks = {name: solve(chain, name).peak_bytes for name in ("sqrt", "greedy", "cubic", "linear")}
    return {"stages": n, **peaks, "2 sqrt(n)": round(2 * sqrt(n), 1), "sqrt(2n)": round(sqrt(2 * n), 1)}


def draw(result: Result) -> Figure:
    """Fractions of the plain peak per network and solver; unit chains."""
    nets, units = result.tables[0].rows, result.tables[1].rows
    names = list(dict.fromkeys(r["net"] for r in nets))
    series = {
        solver: [next(r["of keep_all %"] for r in nets if r["net"] == n and r["solver"] == solver) for n in names]
        for solver in SOLVERS[1:]
    }
    figure, (left, right) = figures.new(2, width=12)
    figures.bars(left, names, series)
    figures.label(left, "Chains of modules, run on fake tensors", y="peak, % of no checkpoints")
    lines = {s: [(r["stages"], r[s]) for r in units] for s in ("cubic", "2 sqrt(n)", "linear", "sqrt(2n)")}
    figures.lines(right, lines, dashed=("2 sqrt(n)", "sqrt(2n)"))
    figures.label(right, "Chains of equal stages, revised objective", "stages", "peak, units")
    return figure


EXPERIMENT = Experiment("5.3", "square-root", "Against the O(sqrt n) algorithm", run, draw)
