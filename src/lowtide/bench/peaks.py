"""The peak of a network's step: counted, predicted, or by the allocator's report."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

import lowtide
from lowtide.acting.loss import scalar_loss
from lowtide.acting.meter import StorageMeter
from lowtide.acting.workspace import traced_with_workspace
from lowtide.bench.models.network import Network
from lowtide.errors import PlanError
from lowtide.planning.plan import Plan
from lowtide.planning.simulate import simulate
from lowtide.planning.step import Step

MB = 2**20

Forward = Callable[..., Any]

COUNTED = "fake, run and counted"
_TENSORS = {
    "meta": COUNTED,
    "fake": "fake, predicted",
    "cpu": "real, CPU allocator",
    "cuda": "real, CUDA allocator",
}


def tensors_of(network: Network) -> str:
    """What the rows of a network say: which tensors, and who tells the peak."""
    return _TENSORS[network.device]


def traced(network: Network) -> Step:
    """The network's step; for a network on the CPU with the scratch that its kernels take there, each measured in a
    call of its own."""
    if network.device != "cpu":
        return lowtide.trace(network.model, network.args, loss=network.loss)
    return traced_with_workspace(network.model, network.args, loss=network.loss)


def peak_of(network: Network, step: Step, plan: Plan | None = None) -> int:
    """The peak of the step under `plan` in bytes above the start, in the way that `tensors_of` says."""
    if network.device == "meta":
        return counted(network, plan)
    if network.device == "fake":
        return simulate(step, plan).peak_bytes
    return measured(network, plan)


def counted(network: Network, plan: Plan | None = None, forward: Forward | None = None) -> int:
    """Most bytes of storages alive at one time in the step, run where the network is. Kernels' workspace is not in it;
    on `meta` it costs nothing. `forward` replaces the model."""
    with StorageMeter() as meter:
        _step(network, plan, forward)
    return meter.peak_bytes


def measured(network: Network, plan: Plan | None = None) -> int:
    """Peak of the step by the allocator's report, above what stood before."""
    gc.collect()
    return lowtide.measure(lambda: _step(network, plan), network.device).peak_bytes


def _step(network: Network, plan: Plan | None = None, forward: Forward | None = None) -> None:
    """One step. Parameters that had no gradient have none afterwards.

    Raises:
        PlanError: if the step leaves its plan: what is found would not be the plan's peak.
    """
    without = [p for p in network.model.parameters() if p.grad is None]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with lowtide.remat(plan) if plan is not None else nullcontext():
            loss = scalar_loss((forward or network.model)(*network.args), network.loss)
        torch.autograd.backward(loss)
    left = next((str(w.message) for w in said if "leaves its plan" in str(w.message)), "")
    if left:
        raise PlanError(f"{network.name}: {left}")
    for p in without:
        p.grad = None


def mb(nbytes: int | None) -> float | None:
    """Bytes as MB (2^20), to one digit."""
    return None if nbytes is None else round(nbytes / MB, 1)


def percent(part: float, whole: float) -> float:
    """100 part / whole, to two digits; 0 of nothing."""
    return round(100 * part / whole, 2) if whole else 0.0
