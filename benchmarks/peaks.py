"""Fifteen networks for real on the CPU: is the planned step the plain one to the bit, is its peak what was predicted,
and is it below what people reach by hand?

plain, planned: peak by the CPU allocator's record, workspace of kernels included. predicted: by the plan, with measured
workspace, and how far it is off; storages off: how far the prediction without workspace is off the same step counted by
storages. sequential: the least peak of `checkpoint_sequential` over all numbers of segments; blocks: that of
`torch.utils.checkpoint` around every block. All peaks are measured in the same way, in one process.
"""

from __future__ import annotations

import copy
import logging
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import lowtide
from benchmarks.output import Limit, Report, chosen, parser
from benchmarks.rivals import n_stages, sequential, without_inplace, wrap_every_block
from lowtide.acting.loss import scalar_loss
from lowtide.acting.measure import measure
from lowtide.acting.meter import StorageMeter
from lowtide.acting.sandbox import map_tensors
from lowtide.acting.workspace import Workspaces
from tests.networks import NETWORKS, Network

MB = 2**20

# Batches, and sizes of images, at which activations outweigh parameters; a step is some seconds on two cores.
SIZES: dict[str, dict[str, int]] = {
    "alexnet": {"batch": 128, "size": 224},
    "vgg16_bn": {"batch": 8, "size": 160},
    "resnet18": {"batch": 16, "size": 224},
    "resnet50": {"batch": 8, "size": 224},
    "densenet121": {"batch": 8, "size": 160},
    "inception_v3": {"batch": 8, "size": 299},
    "efficientnet_b0": {"batch": 8, "size": 224},
    "convnext_tiny": {"batch": 8, "size": 224},
    "vit_b_16": {"batch": 8, "size": 224},
    "swin_t": {"batch": 8, "size": 224},
    "unet": {"batch": 8, "size": 192},
    "gpt2": {"batch": 16, "layers": 12},
    "llama": {"batch": 16},
    "bert": {"batch": 16},
    "t5": {"batch": 16},
}

COLUMNS = (
    "net", "batch", "identical", "plain", "predicted", "off %", "storages off %", "planned", "predicted ", "off % ",
    "storages off % ", "of plain %", "added FLOPs %", "sequential", "segments", "blocks",
)  # fmt: skip


def step_of(network: Network, forward: Callable[[], Any] | None = None, plan: lowtide.Plan | None = None) -> Any:
    """One step as a call: forward and loss, under a plan if there is one, and backward."""

    def call() -> Any:
        return network.model(*network.args, **network.kwargs)

    run = forward or call

    def step() -> None:
        with lowtide.remat(plan) if plan is not None else nullcontext():
            loss = scalar_loss(run(), network.loss)
        loss.backward()

    return step


def on_meta(network: Network) -> Network:
    args, kwargs = map_tensors(
        (network.args, network.kwargs), lambda t: t.detach().to("meta").requires_grad_(t.requires_grad)
    )
    # a loss that holds real targets does not fit meta outputs: the sum has the same peak or a lower one
    return Network(network.model.to("meta"), args, kwargs, None)


def metered(network: Network, step: Any) -> int:
    """Peak of the step by storages. Gradients are dropped first."""
    network.model.zero_grad()
    with StorageMeter() as meter:
        step()
    return meter.peak_bytes


def measured(network: Network, step: Any) -> int:
    """Peak of the step by the allocator's record. Gradients are dropped first."""
    network.model.zero_grad()
    return measure(step, "cpu").peak_bytes


def rivals(name: str, network: Network) -> tuple[int | None, int | None, int | None]:
    """Best of `checkpoint_sequential` and its number of segments, and every block wrapped: measured peaks in bytes.

    Images: all numbers of segments are tried on `meta`, and the best three for real. Language models look at values and
    have few blocks: all are tried for real.
    """
    counts = list(range(1, n_stages(name, network) + 1))
    if network.args:
        small = on_meta(copy.deepcopy(network))
        counts.sort(key=lambda k: sequential_peak(name, small, k, metered))
        counts = counts[:3]
    best = min(((sequential_peak(name, network, k, measured), k) for k in counts), default=(None, None))
    wrapped = copy.deepcopy(network)
    if not wrap_every_block(name, wrapped.model):
        return *best, None
    return *best, measured(wrapped, step_of(wrapped))


def sequential_peak(name: str, original: Network, segments: int, peak_of: Callable[[Network, Any], int]) -> int:
    """Peak with so many segments. In-place activations stay on where that runs: it helps."""
    for inplace in (True, False):
        network = copy.deepcopy(original)
        if not inplace:
            without_inplace(network.model)
        try:
            return peak_of(network, step_of(network, sequential(name, network, segments)))
        except RuntimeError:
            if not inplace:
                raise
    raise AssertionError("unreachable")


def run(name: str, report: Report, solver: str, with_rivals: bool) -> None:
    network = NETWORKS[name](**SIZES[name])
    calls = Workspaces()
    step = lowtide.trace(network.model, network.args, network.kwargs, loss=network.loss, observe=calls)
    storages_only = step
    if calls.calls:
        step = calls.told(step)
    plan = lowtide.plan(step, solver=solver)
    verdict = lowtide.verify(network.model, network.args, network.kwargs, loss=network.loss, plan=plan)
    plain_storages = metered(network, step_of(network))
    planned_storages = metered(network, step_of(network, plan=plan))
    network.model.zero_grad()
    sequential_peak, segments, blocks_peak = rivals(name, network) if with_rivals else (None, None, None)

    def off(predicted: int, found: int) -> float:
        return 100 * (predicted / found - 1)

    offs = (
        off(plan.baseline_peak_bytes, verdict.baseline_peak_bytes),
        off(lowtide.simulate(storages_only).peak_bytes, plain_storages),
        off(plan.peak_bytes, verdict.peak_bytes),
        off(lowtide.simulate(storages_only, plan).peak_bytes, planned_storages),
    )
    report.add(
        **{
            "net": name,
            "batch": SIZES[name]["batch"],
            "identical": verdict.ok,
            "plain": verdict.baseline_peak_bytes / MB,
            "predicted": plan.baseline_peak_bytes / MB,
            "off %": offs[0],
            "storages off %": offs[1],
            "planned": verdict.peak_bytes / MB,
            "predicted ": plan.peak_bytes / MB,
            "off % ": offs[2],
            "storages off % ": offs[3],
            "of plain %": 100 * verdict.peak_bytes / verdict.baseline_peak_bytes,
            "added FLOPs %": 100 * plan.recompute_flops / max(plan.step.total_flops, 1),
            "sequential": None if sequential_peak is None else sequential_peak / MB,
            "segments": segments,
            "blocks": None if blocks_peak is None else blocks_peak / MB,
            "differences": [d.sentence for d in verdict.differences],
            "tolerance": verdict.tolerance,
            "seconds": verdict.seconds,
            "baseline_seconds": verdict.baseline_seconds,
            "solver": plan.solver,
            "inputs": plan.step.meta.get("inputs"),
            "lower_bound_bytes": plan.lower_bound_bytes,
        }
    )
    promise = report.limits.append
    promise(Limit(f"{name}: differences", len(verdict.differences), 0))
    for what, value, limit in zip(
        (
            "plain predicted off measured",
            "plain storages off",
            "planned predicted off measured",
            "planned storages off",
        ),
        offs,
        (5.0, 0.5, 5.0, 0.5),
        strict=True,
    ):
        promise(Limit(f"{name}: {what}, %", abs(value), limit))
    for what, peak in (("checkpoint_sequential", sequential_peak), ("every block wrapped", blocks_peak)):
        if peak is not None:
            promise(Limit(f"{name}: measured planned peak in MB, against {what}", verdict.peak_bytes / MB, peak / MB))


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__, list(NETWORKS))
    options.add_argument("--solver", default="auto", help="see `lowtide solvers`")
    options.add_argument("--no-rivals", action="store_true", help="only Lowtide's own columns")
    args = options.parse_args(argv)
    warnings.filterwarnings("ignore", category=FutureWarning)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    report = Report("peaks", "Measured peaks of real training steps, in MB (2^20)", COLUMNS)
    for name in chosen(args.only, list(NETWORKS)):
        run(name, report, args.solver, not args.no_rivals)
    return report.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
