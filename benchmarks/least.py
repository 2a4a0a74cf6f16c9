"""Least executed peaks of real training steps on the CPU, as fractions of the plain step's, beside what rivals reach.

Every `.grad` is allocated before the step; peaks are counted by storages above the start of the step, in one process
and in one way for all: Lowtide with its default limit (one more forward) and without one, Feng & Huang's algorithm run
by Lowtide, `checkpoint_sequential` at its best number of segments, `torch.utils.checkpoint` around every block.
Gradients of Lowtide's steps are compared bit by bit with the plain step's.
"""

from __future__ import annotations

import copy
import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import lowtide
from benchmarks.output import Limit, Report, chosen, parser
from benchmarks.peaks import on_meta, sequential_peak, step_of
from benchmarks.rivals import n_stages, wrap_every_block
from lowtide.acting.meter import StorageMeter
from lowtide.planning.solve.on_steps import Deep
from tests.networks import NETWORKS, Network

MB = 2**20

PLANS: dict[str, dict[str, Any]] = {
    "default": {"solver": Deep()},
    "no limit": {"solver": Deep(max_slowdown=None)},
    "Feng & Huang": {"solver": "feng_huang"},
}

COLUMNS = (
    "net", "batch", "plain", *PLANS, "identical", "predicted off %", "sequential", "per block", "limit",
    "best in earlier trials",
)  # fmt: skip

NOTES = (
    "plain: MB (2^20) of storages above the start of the step. Plans: fraction of that, MB, added FLOPs in percent.",
    "identical: gradients, buffers and random state under all plans are the plain step's to the bit.",
    "sequential: `checkpoint_sequential`, best of all numbers of segments (in-place activations off where it must).",
    "best in earlier trials: the least fraction that any of rockmate, `torch.compile`, Feng & Huang's program and",
    "checkpointing by hand reached in trials before this project: not run by this command.",
)


def _image_net(name: str, batch: int, size: int = 224) -> Callable[[], Network]:
    def make() -> Network:
        import torchvision

        torch.manual_seed(0)
        model: nn.Module = getattr(torchvision.models, name)(weights=None).train()
        return Network(model, (torch.randn(batch, 3, size, size, requires_grad=True),), {}, torch.sum)

    return make


# name -> batch, network, largest fraction of the plain step's peak, least one of earlier trials
REAL: dict[str, tuple[int, Callable[[], Network], float | None, float | None]] = {
    "resnet50": (8, _image_net("resnet50", 8), 0.22, 0.307),
    "resnet18": (16, _image_net("resnet18", 16), 0.50, 0.541),
    "vgg16": (8, _image_net("vgg16", 8), 0.45, 0.491),
    "gpt2": (8, lambda: NETWORKS["gpt2"](batch=8, layers=12, length=128, width=256), 0.15, 0.157),
    "densenet121": (4, _image_net("densenet121", 4, 160), None, None),
    "unet": (4, lambda: NETWORKS["unet"](batch=4), None, None),
}


def run(name: str, report: Report) -> None:
    batch, make, limit, earlier = REAL[name]
    network = make()
    step = lowtide.trace(network.model, network.args, network.kwargs, loss=network.loss)
    verdicts: dict[str, lowtide.Verdict] = {}
    for title, how in PLANS.items():
        plan = lowtide.plan(step, **how)
        verdicts[title] = lowtide.verify(network.model, network.args, network.kwargs, loss=network.loss, plan=plan)
    _allocate_gradients(network)
    again = lowtide.trace(network.model, network.args, network.kwargs, loss=network.loss)
    plain = _storages(network)
    off = 100 * abs(lowtide.simulate(again).peak_bytes / plain - 1)
    line: dict[str, Any] = {"net": name, "batch": batch, "plain": plain / MB}
    least = 1.0
    for title, how in PLANS.items():
        plan = lowtide.plan(again, **how)
        planned = _storages(network, plan)
        off = max(off, 100 * abs(plan.peak_bytes / planned - 1))
        added = 100 * plan.recompute_flops / again.total_flops
        line[title] = f"{planned / plain:.3f} {planned / MB:.1f} +{added:.1f}%"
        line[f"{title} plan"] = {"peak_bytes": planned, "of_plain": planned / plain, "added_flops_percent": added}
        if title != "Feng & Huang":
            least = min(least, planned / plain)
        differences = [d.sentence for d in verdicts[title].differences]
        line[f"{title} differences"] = differences
        report.limits.append(Limit(f"{name}, {title}: differences", len(differences), 0))
    line["identical"] = all(v.ok for v in verdicts.values())
    line["predicted off %"] = off
    by_hand = _sequential(name, network), _per_block(name, network)
    line["sequential"], line["per block"] = (x and round(x / plain, 3) for x in by_hand)
    line["limit"], line["best in earlier trials"] = limit, earlier
    report.add(**line)
    report.limits.append(Limit(f"{name}: predicted off storages, %", off, 0.5))
    if limit is not None:
        report.limits.append(Limit(f"{name}: least peak, of plain", least, limit))
    for what, peak in zip(("checkpoint_sequential", "every block wrapped"), by_hand, strict=True):
        if peak is not None:
            report.limits.append(Limit(f"{name}: least peak, of plain, against {what}", least, peak / plain))


def _allocate_gradients(network: Network) -> None:
    for t in (*network.model.parameters(), *(a for a in network.args if isinstance(a, torch.Tensor))):
        if t.requires_grad:
            t.grad = torch.zeros_like(t)


def _storages(network: Network, plan: lowtide.Plan | None = None) -> int:
    with StorageMeter() as meter:
        step_of(network, plan=plan)()
    return meter.peak_bytes


def _sequential(name: str, network: Network) -> int | None:
    """Least peak of `checkpoint_sequential` over all numbers of segments: on `meta` for images, and for real for
    language models, which look at values."""

    def peak_of(rival: Network, step: Callable[[], Any]) -> int:
        _allocate_gradients(rival)
        with StorageMeter() as meter:
            step()
        return meter.peak_bytes

    small = on_meta(copy.deepcopy(network)) if network.args else network
    counts = range(1, n_stages(name, network) + 1)
    return min((sequential_peak(name, small, k, peak_of) for k in counts), default=None)


def _per_block(name: str, network: Network) -> int | None:
    rival = copy.deepcopy(network)
    _allocate_gradients(rival)
    return _storages(rival) if wrap_every_block(name, rival.model) else None


def main(argv: list[str] | None = None) -> int:
    args = parser(__doc__, list(REAL)).parse_args(argv)
    warnings.filterwarnings("ignore", category=FutureWarning)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    report = Report("least", "Least executed peaks of real steps", COLUMNS, notes=list(NOTES))
    for name in chosen(args.only, list(REAL)):
        run(name, report)
    return report.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
