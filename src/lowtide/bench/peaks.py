"""The peak of a network's step in two ways: counted on `meta`, and by the allocator's report."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import lowtide
from lowtide.acting.loss import scalar_loss
from lowtide.acting.meter import StorageMeter
from lowtide.bench.models.network import Network
from lowtide.planning.plan import Plan
from lowtide.planning.step import Step

MB = 2**20

CPU, CUDA, META = "real, CPU allocator", "real, CUDA allocator", "meta, storages counted"


def traced(network: Network) -> Step:
    """The network's step."""
    return lowtide.trace(network.model, network.args, loss=network.loss)


def step_of(network: Network, plan: Plan | None = None, forward: Callable[[], Any] | None = None) -> Callable[[], None]:
    """One step as a call: forward (`forward()` if it is given) and loss, under `plan` if there is one, and backward."""

    def call() -> Any:
        return network.model(*network.args)

    run = forward or call

    def step() -> None:
        with lowtide.remat(plan) if plan is not None else nullcontext():
            loss = scalar_loss(run(), network.loss)
        loss.backward()

    return step


def counted(network: Network, plan: Plan | None = None, forward: Callable[[], Any] | None = None) -> int:
    """Most bytes of storages alive at one time in the step, run on whatever device the network is; `meta` costs
    nothing. Kernels' workspace is not in it."""
    with StorageMeter() as meter:
        step_of(network, plan, forward)()
    return meter.peak_bytes


def measured(network: Network, device: str, plan: Plan | None = None) -> int:
    """Peak of the step by the allocator's report, above what stood before. Gradients are dropped first."""
    network.model.zero_grad()
    gc.collect()
    found = lowtide.measure(step_of(network, plan), device)
    network.model.zero_grad()
    return found.peak_bytes


def mb(nbytes: int | None) -> float | None:
    """Bytes as MB (2^20), to one digit."""
    return None if nbytes is None else round(nbytes / MB, 1)


def percent(part: float, whole: float) -> float:
    """100 part / whole, to two digits; 0 of nothing."""
    return round(100 * part / whole, 2) if whole else 0.0
