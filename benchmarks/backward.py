"""Backward under a plan against eager backward plus the recomputed ops, on real steps.

In turn, in one process: plain, under a plan that keeps everything, and under the least-peak plan. What the recomputed
ops take is told in two ways: by a clock around each of them in a planned run, and alone, one after another on the
tensors of a planned run. Processor time of the one thread that works. Ratios are taken within a round, and of these the
median, so that a busy machine changes little.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

import lowtide
from benchmarks.output import Limit, Report, chosen, parser
from benchmarks.peaks import SIZES
from lowtide.acting.loss import scalar_loss
from lowtide.acting.record import Record, below_autograd
from tests.networks import NETWORKS, Network

COLUMNS = (
    "step", "ops", "recomputed", "forward ms", "keep all x", "planned x", "backward ms", "keep all x ",
    "recomputed ms", "alone ms", "planned ms", "of both", "of both, alone",
)  # fmt: skip

STEPS = ("resnet50", "unet", "gpt2")

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


def once(network: Network, plan: lowtide.Plan | None) -> tuple[float, float]:
    """Seconds of forward and of backward."""
    network.model.zero_grad()
    start = time.thread_time()
    with lowtide.remat(plan) if plan is not None else nullcontext():
        loss = scalar_loss(network.model(*network.args, **network.kwargs), network.loss)
    middle = time.thread_time()
    loss.backward()
    return middle - start, time.thread_time() - middle


@contextmanager
def recomputing(around: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> Generator[None]:
    """Inside, `around(func, args, kwargs)` is called for each op that is run again."""
    original = Record.run

    def run(self: Record, *consume: Any, **more: Any) -> None:
        func = self.func
        self.func = lambda *args, **kwargs: around(func, args, kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        try:
            original(self, *consume, **more)
        finally:
            self.func = func

    Record.run = run
    try:
        yield
    finally:
        Record.run = original


def recomputed(network: Network, plan: lowtide.Plan) -> list[Call]:
    """What is run again, with the tensors it is run on."""
    calls: list[Call] = []

    def around(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        calls.append((func, args, kwargs))
        return func(*args, **kwargs)

    with recomputing(around):
        once(network, plan)
    return calls


def clocked(network: Network, plan: lowtide.Plan) -> tuple[float, float]:
    """Seconds of backward, and of the recomputed ops in it."""
    spent = 0.0

    def around(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal spent
        start = time.thread_time()
        out = func(*args, **kwargs)
        spent += time.thread_time() - start
        return out

    with recomputing(around):
        _, backward = once(network, plan)
    return backward, spent


def alone(calls: list[Call]) -> float:
    """Seconds of the calls, one after another."""
    with below_autograd():
        start = time.thread_time()
        for func, args, kwargs in calls:
            func(*args, **kwargs)
        return time.thread_time() - start


def run(name: str, report: Report, repeat: int, small: bool = False) -> None:
    network = NETWORKS[name](**({} if small else SIZES[name]))
    step = lowtide.trace(network.model, network.args, network.kwargs, loss=network.loss)
    least, keeping = lowtide.plan(step, compress=False), lowtide.plan(step, solver="keep_all")
    calls = recomputed(network, least)
    for plan in (None, keeping):
        once(network, plan)
    gc.collect()
    gc.disable()
    rounds: list[dict[str, float]] = []
    ways: list[tuple[str, lowtide.Plan | None]] = [("plain", None), ("keep all", keeping), ("planned", least)]
    for i in range(repeat):
        row: dict[str, float] = {}
        for way, plan in ways[i % 3 :] + ways[: i % 3]:  # what came before leaves caches and the heap in some state
            row[f"forward {way}"], row[f"backward {way}"] = once(network, plan)
        row["alone"] = alone(calls)
        row["backward clocked"], row["recomputed"] = clocked(network, least)
        rounds.append(row)
    gc.enable()

    def median(f: Callable[[dict[str, float]], float]) -> float:
        return statistics.median(map(f, rounds))

    both = median(lambda r: r["backward clocked"] / (r["backward plain"] + r["recomputed"]))
    kept = median(lambda r: r["backward keep all"] / r["backward plain"])
    report.add(
        **{
            "step": name,
            "ops": len(step.ops),
            "recomputed": len(calls),
            "forward ms": 1e3 * median(lambda r: r["forward plain"]),
            "keep all x": median(lambda r: r["forward keep all"] / r["forward plain"]),
            "planned x": median(lambda r: r["forward planned"] / r["forward plain"]),
            "backward ms": 1e3 * median(lambda r: r["backward plain"]),
            "keep all x ": kept,
            "recomputed ms": 1e3 * median(lambda r: r["recomputed"]),
            "alone ms": 1e3 * median(lambda r: r["alone"]),
            "planned ms": 1e3 * median(lambda r: r["backward planned"]),
            "of both": both,
            "of both, alone": median(lambda r: r["backward planned"] / (r["backward plain"] + r["alone"])),
            "rounds": rounds,
        }
    )
    report.limits.append(Limit(f"{name}: backward that keeps all, of the plain one", kept, 1.03))
    report.limits.append(Limit(f"{name}: planned backward, of the plain one and the recomputed ops", both, 1.03))


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__, STEPS)
    options.add_argument("--repeat", type=int, default=5, metavar="N", help="rounds (default 5)")
    options.add_argument("--small", action="store_true", help="sizes at which a step takes some hundredths of a second")
    args = options.parse_args(argv)
    torch.set_num_threads(1)
    report = Report("backward", "Backward under a plan, processor time of one thread", COLUMNS)
    for name in chosen(args.only, STEPS):
        run(name, report, args.repeat, args.small)
    return report.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
