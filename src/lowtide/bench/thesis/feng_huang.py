"""5.4: against Feng and Huang's algorithm, both plans run by one executor, and by `torch.utils.checkpoint`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from lowtide.bench import figures
from lowtide.bench.models.library import torchvision_model
from lowtide.bench.models.network import Network
from lowtide.bench.models.sequential import dropout_off, sequential
from lowtide.bench.peaks import counted, mb, percent, traced
from lowtide.bench.published import TABLE, Published
from lowtide.bench.result import Experiment, Progress, Result, Row, Table
from lowtide.bench.segments import checkpointed, cuts_of, leading_inplace_off, stage_of
from lowtide.bench.tensor_table import as_they_run_it
from lowtide.models.build import build
from lowtide.planning.chain import Chain
from lowtide.planning.graph import Graph, lift_kept
from lowtide.planning.judge import judge
from lowtide.planning.plan import Plan
from lowtide.planning.reduce import lift, reduce
from lowtide.planning.solve import solve
from lowtide.planning.solve.feng_huang import least_kept_plus_worst
from lowtide.planning.solve.frontier import search
from lowtide.planning.step import Step

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")
Searched = tuple[Graph, list[int], dict[str, float]]

QUICK = ("alexnet", "vgg16", "resnet50", "densenet121")

PEAKS = (
    "net", "batch", "regular", "Feng & Huang", "added FLOPs %", "Lowtide", "added FLOPs % ", "bound",
    "published regular", "published OGC", "published time %", "OGC's own plan", "run their way",
)  # fmt: skip
CHAINS = (
    "net", "stages", "linear, Lowtide runs it", "linear, torch runs it", "Feng & Huang, Lowtide runs it",
    "Feng & Huang, torch runs it",
)  # fmt: skip
TIMES = ("net", "ops", "vertices", "trace s", "Feng & Huang s", "Lowtide s", "linear ms", "their solver s, published")

NOTES = (
    "FP32, the loss is the sum of the output, dropout off, the input requires a gradient, every `.grad` is allocated; "
    "MB (2^20) above the start of the step. Fake tensors: every peak without the word published is that of a step run "
    "on fake tensors with its storages counted, so no kernel's workspace is in it.",
    "Feng & Huang: this project's implementation of their algorithm on the graph of the step; Lowtide: solver "
    "`frontier`, at most one recomputation per op. Both are plans of the same step, run by the same executor.",
    "published: from the README of their code, measured on a GPU, cuDNN's workspace and reentrant checkpointing "
    "included. OGC's own plan: what their program planned, run by it without reentrance on fake tensors, in a trial "
    "before. run their way: our plan of their algorithm run by the rules of their program, which holds what every "
    "vertex of a segment puts out until the segment has run (Inception's blocks are not taken apart for it).",
    "DenseNets are run in the form `x = cat([x, layer(x)])`, which is the one their algorithm can take apart. "
    "torchvision's own DenseNet hands a list of features on; rows marked 'as in torchvision' are that network.",
    "The second table takes each network as an `nn.Sequential` of stages and plans on that chain: there PyTorch's own "
    "`torch.utils.checkpoint` (not reentrant) can run the same checkpoints. An in-place activation that begins a "
    "segment is run out of place there.",
    "Seconds to plan: the search alone, without the trace, the check of the plan and its bound. Their solver's are as "
    "noted for other hardware; only the orders of magnitude compare.",
)


def conditions(network: Network) -> Network:
    """The network under the conditions of their table: the input requires a gradient, gradients are allocated."""
    (x,) = network.args
    x.requires_grad_(True)
    for p in [*network.model.parameters(), x]:
        p.grad = torch.empty_like(p)
    return network


def network_of(row: Published, as_in_torchvision: bool = False) -> Network:
    """The network of a row on `meta`, as a sequence of stages."""

    def make() -> tuple[Any, torch.Tensor]:
        model = dropout_off(torchvision_model(row.name)().train()) if as_in_torchvision else sequential(row.name)
        return model, torch.empty(row.batch, 3, row.size, row.size)

    model, x = build(make, device="meta")
    return conditions(Network(row.name, model, (x,)))


def on_chain(network: Network, step: Step, chain: Chain, solver: str) -> tuple[float | None, float | None]:
    """Peaks in MB of `solver`'s checkpoints on the chain: run by Lowtide, and by `torch.utils.checkpoint`."""
    checkpoints = solve(chain, solver).checkpoints
    plan = judge(step, *lift(step, chain, checkpoints), solver=solver, status="")
    stages, cuts = network.model, cuts_of(step, chain, checkpoints)
    if not isinstance(stages, torch.nn.Sequential):
        raise TypeError(f"{network.name} is not a sequence of stages")
    with leading_inplace_off(stages, cuts):
        run = checkpointed(stages, cuts)
        by_torch = counted(network, forward=run)
    return mb(counted(network, plan)), mb(by_torch)


def their_way(network: Network, step: Step, searched: Searched | None = None) -> int | None:
    """Peak of the plan of `feng_huang` as their program would run it; None if its blocks are not taken apart for it."""
    if not isinstance(network.model, torch.nn.Sequential):
        raise TypeError(f"{network.name} is not a sequence of stages")
    graph, kept, stats = searched or search_as_theirs(step)
    largest = int(stats["claimed_peak_bytes"]) - sum(graph.nbytes[v] for v in kept)
    forward = as_they_run_it(network.model, step, graph, kept, largest)
    return None if forward is None else counted(network, forward=forward)


def search_as_theirs(step: Step) -> Searched:
    """The graph of the step, the vertices that their algorithm keeps, and figures about the search."""
    graph = Graph.from_step(step)
    return graph, *least_kept_plus_worst(graph)


def _timed(run: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    return run(), time.perf_counter() - start


def _compare(row: Published, network: Network, label: str) -> tuple[dict[str, Any], dict[str, Any], Step]:
    """A row of peaks and a row of times."""
    step = traced(network)
    searched, their_s = _timed(lambda: search_as_theirs(step))
    graph, kept, _ = searched
    theirs = judge(step, *lift_kept(step, graph, kept), solver="feng_huang", status="")
    found, our_s = _timed(lambda: search(step))
    ours = judge(step, found.keep, found.runs, solver="frontier", status="")
    linear = solve(reduce(step, "module"), "linear")
    plans: list[Plan | None] = [None, theirs, ours]
    regular, their_peak, our_peak = (counted(network, plan) for plan in plans)
    peaks = {
        "net": label,
        "batch": row.batch,
        "regular": mb(regular),
        "Feng & Huang": mb(their_peak),
        "added FLOPs %": percent(theirs.recompute_flops, step.total_flops),
        "Lowtide": mb(our_peak),
        "added FLOPs % ": percent(ours.recompute_flops, step.total_flops),
        "bound": mb(ours.lower_bound_bytes),
        "published regular": row.regular_mb,
        "published OGC": row.ogc_mb,
        "published time %": round(100 * row.added_time),
        "OGC's own plan": row.own_plan_mb,
        "run their way": None if label != row.name else mb(their_way(network, step, searched)),
        "peak_bytes": {"regular": regular, "feng_huang": their_peak, "frontier": our_peak},
        "predicted_bytes": {"feng_huang": theirs.peak_bytes, "frontier": ours.peak_bytes},
    }
    times = {
        "net": label,
        "ops": len(step.ops),
        "vertices": graph.n,
        "trace s": step.meta.get("trace_s"),
        "Feng & Huang s": round(their_s, 3),
        "Lowtide s": round(our_s, 3),
        "linear ms": round(1000 * linear.stats["seconds"], 3),
        "their solver s, published": row.solver_s,
    }
    return peaks, times, step


def run(quick: bool, progress: Progress) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """All rows of their table; with `quick` four of them."""
    rows = [r for r in TABLE if not quick or r.name in QUICK]
    peaks: list[Row] = []
    chains: list[Row] = []
    times: list[Row] = []
    for k, row in enumerate(rows):
        progress(row.name, k / len(rows))
        network = network_of(row)
        compared, timed, step = _compare(row, network, row.name)
        peaks.append(compared)
        times.append(timed)
        chain = reduce(step, stage_of)
        found = [on_chain(network, step, chain, solver) for solver in ("linear", "feng_huang")]
        values = (row.name, chain.n, *found[0], *found[1])
        chains.append(dict(zip(CHAINS, values, strict=True)))
        if row.name.startswith("densenet"):
            label = f"{row.name}, as in torchvision"
            compared, timed, _ = _compare(row, network_of(row, as_in_torchvision=True), label)
            peaks.append(compared | dict.fromkeys(PEAKS[-5:]))
            times.append(timed | {TIMES[-1]: None})
    return (
        Table("Peaks in MB of plans on the step", PEAKS, tuple(peaks)),
        Table("Peaks in MB of checkpoints on the chain of stages", CHAINS, tuple(chains)),
        Table("Seconds to plan", TIMES, tuple(times)),
    ), NOTES


def draw(result: Result) -> Figure:
    """Peaks as fractions of the regular one, and the published fractions."""
    rows = [r for r in result.tables[0].rows if r["published OGC"] is not None]
    series = {
        "published OGC / published regular (GPU)": [r["published OGC"] / r["published regular"] for r in rows],
        "Feng & Huang's algorithm": [r["Feng & Huang"] / r["regular"] for r in rows],
        "Lowtide, one recomputation per op": [r["Lowtide"] / r["regular"] for r in rows],
        "bound": [r["bound"] / r["regular"] for r in rows],
    }
    figure, (axis,) = figures.new(1, width=10)
    figures.bars(axis, [r["net"] for r in rows], series, marks=("bound",))
    figures.label(axis, "Peaks under the conditions of Feng & Huang's table", y="peak / peak of the regular step")
    return figure


EXPERIMENT = Experiment("5.4", "feng-huang", "Against Feng and Huang's algorithm", run, draw)
