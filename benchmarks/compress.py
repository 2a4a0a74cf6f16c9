"""What codes in the place of saved tensors gain: `python -m benchmarks.compress`.

Each network is planned without codes and with them: for the least peak with one more forward of added work at most, and
for the least added time at a share of the plain step's peak. `codes alone`: the peak if nothing is recomputed. The
plans are run for real, their peaks counted by storages (kernels' scratch is in neither number) and the step compared
with the plain one bit for bit. Steps are timed by a model of an A100, which does not reckon with encoding and decoding;
what these take here is `codes cost`, with --time: the process' CPU time of a step with codes alone against a plain one.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from math import inf

import torch
from torch import nn

import lowtide
from benchmarks.output import Limit, Report, chosen, parser
from lowtide.acting.loss import scalar_loss
from lowtide.acting.meter import StorageMeter
from lowtide.errors import InputError
from lowtide.planning.compress import compressed
from lowtide.planning.cost import roofline
from lowtide.planning.judge import judge
from lowtide.planning.plan import Plan
from lowtide.planning.simulate import keep_all, simulate
from lowtide.planning.step import Step
from tests.networks import NETWORKS, Network

MB = 2**20


def encoder(batch: int = 8) -> Network:
    """A transformer encoder as torch has it, dropout and ReLU in its feed-forward part."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    return Network(model.train(), (torch.randn(batch, 256, 256),), loss=lambda y: y.square().mean())


def vgg16(batch: int = 16) -> Network:
    import torchvision

    torch.manual_seed(0)
    return Network(torchvision.models.vgg16(num_classes=10).train(), (torch.randn(batch, 3, 224, 224),))


MAKERS: dict[str, Callable[[], Network]] = {
    "alexnet": lambda: NETWORKS["alexnet"](256, 224),
    "vgg16": vgg16,
    "resnet50": lambda: NETWORKS["resnet50"](8, 224),
    "densenet121": lambda: NETWORKS["densenet121"](8, 160),
    "unet": lambda: NETWORKS["unet"](8, 192),
    "encoder": encoder,
}

COLUMNS = (
    "net", "identical", "off bytes", "plain", "codes alone", "least", "least with", "added %", "added % with", "bound",
    "bound with", "time % at budget", "time % with", "codes cost %",
)  # fmt: skip


def metered(network: Network, plan: Plan) -> int:
    """Peak of the planned step, counted by storages."""
    network.model.zero_grad()
    with StorageMeter() as meter:
        with lowtide.remat(plan):
            loss = scalar_loss(network.model(*network.args, **network.kwargs), network.loss)
        loss.backward()
    return meter.peak_bytes


def cost(network: Network, step: Step, repeats: int = 3) -> float:
    """CPU time in % that the codes add to a step in which nothing is recomputed. Least of some runs, by turns."""
    small = compressed(step)
    plans = (judge(step, keep_all(step), {}, "keep", ""), judge(small, keep_all(small), {}, "codes", ""))
    least = [inf, inf]
    for _ in range(repeats):
        for i, plan in enumerate(plans):
            network.model.zero_grad()
            start = time.process_time()
            with lowtide.remat(plan):
                loss = scalar_loss(network.model(*network.args, **network.kwargs), network.loss)
            loss.backward()
            least[i] = min(least[i], time.process_time() - start)
    return 100 * (least[1] / least[0] - 1)


def slowdown(step: Step, share: int, compress: bool) -> float | None:
    """Added time in % at a budget of `share` % of the plain step's peak; None if nothing fits."""
    try:
        plan = lowtide.plan(step, budget=f"{share}%", budget_of="step", compress=compress)
    except InputError:
        return None
    return 100 * plan.slowdown


def run(name: str, report: Report, share: int, timed: bool) -> None:
    network = MAKERS[name]()
    step = lowtide.trace(network.model, network.args, network.kwargs, loss=network.loss)
    without, best = lowtide.plan(step, compress=False), lowtide.plan(step)
    verdict = lowtide.verify(network.model, network.args, network.kwargs, loss=network.loss, plan=best)
    off = metered(network, best) - best.peak_bytes
    costed = roofline(step, "a100")
    report.add(
        **{
            "net": name,
            "identical": verdict.ok,
            "off bytes": off,
            "plain": without.baseline_peak_bytes / MB,
            "codes alone": simulate(compressed(step)).peak_bytes / MB,
            "least": without.peak_bytes / MB,
            "least with": best.peak_bytes / MB,
            "added %": 100 * without.slowdown,
            "added % with": 100 * best.slowdown,
            "bound": without.lower_bound_bytes / MB,
            "bound with": best.lower_bound_bytes / MB,
            "time % at budget": slowdown(costed, share, compress=False),
            "time % with": slowdown(costed, share, compress=True),
            "codes cost %": cost(network, step) if timed else None,
        }
    )
    report.limits += [
        Limit(f"{name}: differences", len(verdict.differences), 0),
        Limit(f"{name}: storages off, bytes", abs(off), 0),
        Limit(f"{name}: least peak with codes, against without", best.peak_bytes, without.peak_bytes),
    ]


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__, list(MAKERS))
    options.add_argument("--share", type=int, default=60, help="the budget in %% of the plain step's peak")
    options.add_argument("--time", action="store_true", help="also time encoding and decoding")
    args = options.parse_args(argv)
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
    title = f"Least peaks in MB (2^20) above the start of the step; added time at {args.share} % of the plain peak"
    report = Report("compress", title, COLUMNS)
    for name in chosen(args.only, list(MAKERS)):
        run(name, report, args.share, args.time)
    return report.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
