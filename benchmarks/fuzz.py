"""Random models under random plans against the plain step: `python -m benchmarks.fuzz --seconds 600 --seed 0`.

Each case is a random training step (`tests/random_models.py`), traced at one batch size and run at the same or another
one, plain and under arbitrary valid plans, in one of several ways: losses run backward one by one, backward inside the
region, a gradient for a part first. Everything the step leaves behind must be the same to the bit; where the plain step
raises, so must the planned one. Where plan and step agree, the peak counted by storages must be the simulated one.

A case is told by its seed alone: `--seed 1234 --cases 1 --verbose` runs it again.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import multiprocessing
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import lowtide
from lowtide.acting.meter import StorageMeter
from lowtide.errors import TraceError
from lowtide.planning.compress import compressed
from lowtide.planning.plan import Plan
from lowtide.planning.simulate import simulate
from tests.outcome import Outcome, differences, outcome_of, seed_all
from tests.plans import drop_everything, random_plan
from tests.random_models import CHANNELS, RandomStep, random_step

WAYS = ("one loss", "one loss", "each output", "in the region", "a part first", "twice")
PLANS_PER_CASE = 3


@dataclass
class Tally:
    """What a run of the fuzzer has seen."""

    cases: int = 0
    steps: int = 0
    recomputed: int = 0
    raising: int = 0
    refused: int = 0
    peaks: int = 0
    divergent: int = 0
    codes: int = 0
    failures: list[str] = field(default_factory=list[str])

    def add(self, other: Tally) -> None:
        for name in ("cases", "steps", "recomputed", "raising", "refused", "peaks", "divergent", "codes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failures += other.failures


def run_step(step: RandomStep, way: str, plan: Plan | None) -> Outcome:
    """Two training steps, done `way`; what they left behind. A `RuntimeError` is an outcome, too."""
    model, args, loss = step.make()
    seed_all(step.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    found: Outcome = {}
    for k in range(2):
        optimizer.zero_grad()
        for t in args:
            t.grad = None
        try:
            parts = _backward(way, lambda: model(*args), loss, plan, list(model.parameters()))
        except RuntimeError as e:
            # What was accumulated before backward raised depends on the order of the engine only.
            return found | {"raised": "modified by an inplace operation" in str(e) or repr(e)}
        found |= {f"step {k} {name}": v for name, v in outcome_of(model, args, parts, [model.counter]).items()}
        del parts
        optimizer.step()
    return found


def _backward(
    way: str, forward: Callable[[], list[Tensor]], loss: Callable[[Any], Tensor], plan: Plan | None, params: list[Any]
) -> list[Tensor]:
    region = lowtide.remat(plan) if plan is not None else contextlib.nullcontext()
    if way == "in the region":
        with region:
            total = loss(forward())
            total.backward()
        return [total.detach()]
    if way == "each output":
        with region:
            parts = [loss([t]) for t in forward()]
        parts = [p for p in parts if p.requires_grad]
        for i, part in enumerate(parts):
            part.backward(retain_graph=i + 1 < len(parts))
        return [p.detach() for p in parts]
    with region:
        total = loss(forward())
    if way == "a part first":
        trainable = [p for p in params if p.requires_grad]
        early = torch.autograd.grad(total, trainable[-2:], retain_graph=True, allow_unused=True)
        total.backward()
        return [total.detach(), *(g for g in early if g is not None)]
    if way == "twice":
        total.backward(retain_graph=True)
    total.backward()
    return [total.detach()]


def peak_of(step: RandomStep, plan: Plan | None) -> tuple[int, str]:
    """Most bytes above the start of one step, counted by storages."""
    model, args, loss = step.make()
    seed_all(step.seed)
    meter = StorageMeter()
    gc.disable()
    try:
        with meter:
            with lowtide.remat(plan) if plan is not None else contextlib.nullcontext():
                total = loss(model(*args))
            total.backward()
    finally:
        gc.enable()
    return meter.peak_bytes, meter.peak_op


def run_case(seed: int, tally: Tally, verbose: bool = False, compress: bool = False) -> None:
    """One case; what is wrong with it goes into `tally.failures`. `compress`: with codes wherever they can be."""
    step = random_step(seed)
    way = WAYS[seed % len(WAYS)]
    tally.cases += 1
    plain = run_step(step, way, None)
    raises = "raised" in plain
    tally.raising += raises
    other = 4 if seed % 5 == 0 else step.batch
    model, args, loss = step.make(batch=other)
    kinds = getattr(model, "kinds", [])
    if verbose:
        print(f"seed {seed}: {way}, batch {step.batch}, traced at {other}, {kinds}")
    try:
        traced = lowtide.trace(model, args, loss=loss)
    except TraceError as e:
        tally.refused += 1
        if not raises:
            tally.failures.append(f"seed {seed}: cannot be traced: {e}")
        return
    if compress:
        traced = compressed(traced, least_bytes=1)
        tally.codes += len(traced.codes)
    plans = [drop_everything(traced)] + [random_plan(traced, seed * 10 + k) for k in range(PLANS_PER_CASE - 1)]
    for plan in plans:
        tally.steps += 1
        tally.recomputed += plan.recompute_ops
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            planned = run_step(step, way, plan)
        leaves = any("leaves its plan" in str(w.message) for w in caught)
        tally.divergent += leaves
        if bad := differences(plain, planned):
            tally.failures.append(f"seed {seed}, plan {plan.solver}, {way}: {len(bad)} differ: {', '.join(bad[:6])}")
            if verbose:
                print(tally.failures[-1], [planned[b] if b == "raised" else "" for b in bad], plain.get("raised"))
        # What a backward inside forward recomputes is saved once more; what is changed past the version counter is
        # kept, and so is what takes another way on real tensors: the simulator tells none of it.
        if not raises and other == step.batch and not leaves and not EXOTIC.intersection(kinds):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                measured, op = peak_of(step, plan)
            predicted = simulate(traced, plan).peak_bytes
            tally.peaks += 1
            if abs(measured - predicted) > kinds.count("norm") * STATISTICS_BYTES * step.batch:
                tally.failures.append(
                    f"seed {seed}, plan {plan.solver}: peak {measured} bytes at {op}, predicted {predicted}"
                )


EXOTIC = {"gradient_inside", "past_the_counter", "another_way"}
# Mean and variance of an instance norm for each image, which autograd saves and then changes.
STATISTICS_BYTES = 2 * 4 * CHANNELS


def work(seeds: range, seconds: float, verbose: bool, compress: bool) -> Tally:
    """Cases for all of `seeds`, or as many as `seconds` allow."""
    torch.set_num_threads(1)
    tally, until = Tally(), time.monotonic() + seconds
    for seed in seeds:
        if time.monotonic() > until:
            break
        try:
            run_case(seed, tally, verbose, compress)
        except Exception:
            tally.failures.append(f"seed {seed}: {traceback.format_exc()}")
    return tally


def _work(job: tuple[range, float, bool, bool]) -> Tally:
    return work(*job)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0, help="the first case")
    parser.add_argument("--cases", type=int, default=10**9, help="how many at most")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--compress", action="store_true", help="plans with codes in the place of saved tensors")
    args = parser.parse_args(argv)
    jobs = max(1, min(args.jobs, args.cases))
    shares = [
        (range(args.seed + j, args.seed + args.cases, jobs), args.seconds, args.verbose, args.compress)
        for j in range(jobs)
    ]
    total = Tally()
    if jobs == 1:
        total.add(_work(shares[0]))
    else:
        with multiprocessing.get_context("spawn").Pool(jobs) as pool:
            for tally in pool.imap_unordered(_work, shares):
                total.add(tally)
    for failure in total.failures:
        print(failure)
    print(
        f"{total.cases} random models, {total.steps} planned runs of 2 steps, {total.recomputed} recomputed ops in the "
        f"plans, {total.raising} models that raise, {total.divergent} runs that left their plan, {total.peaks} peaks, "
        f"{total.codes} codes: "
        f"{len(total.failures)} failures"
    )
    for text, n in Counter(f.partition(": ")[2][:60] for f in total.failures).most_common(20):
        print(f"{n:6d}  {text}")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
