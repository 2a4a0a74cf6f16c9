"""What rivals make of a step: peak by storages, FLOPs and roofline seconds of a run on fake CPU tensors."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.budget_nets import ATTENTION, loss_of, on_cpu
from benchmarks.compiled import FEW, SETTINGS, Compiled
from benchmarks.rivals import n_stages, sequential, without_inplace, wrap_every_block
from benchmarks.work import Work
from lowtide.acting.meter import StorageMeter
from lowtide.planning.cost import Device
from tests.networks import Network

Make = Callable[[], Network]
Change = Callable[[Network], Callable[[], Any] | None]  # may change the network, and give another forward
Run = Callable[[TorchDispatchMode], None]

_MOST_SEGMENTS = 24


@dataclass(frozen=True)
class Point:
    """What one way of running a step takes."""

    name: str
    peak_bytes: int
    flops: int
    seconds: float


def rivals(name: str, make: Make, device: Device, quick: bool) -> Iterator[tuple[Point, Point]]:
    """Points of rivals, each with the same rival's point without recomputation."""
    plain = _point("plain", _on_fake(make), device)
    if best := _best_sequential(name, make, device, quick):
        yield best, plain

    def wrap(network: Network) -> None:
        wrap_every_block(name, network.model)

    yield _point("blocks", _on_fake(make, wrap), device), plain
    network = on_cpu(make())
    first: Point | None = None
    settings = FEW[::2] if quick else SETTINGS if name == "resnet50" else FEW
    for budget, solver in settings:
        try:
            compiled = Compiled(lambda: loss_of(network), budget, solver)
            found = _point(f"compile {budget} {solver}", compiled.run, device)
        except Exception as e:
            print(f"{name}: torch.compile at {budget} failed: {type(e).__name__}: {e}", file=sys.stderr)
            continue
        first = first or found
        yield found, first


def _point(name: str, run: Run, device: Device) -> Point:
    """Run a step under meters, one after the other: each must see what autograd sees without the other."""
    meter, work = StorageMeter(), Work(device)
    for mode in (meter, work):
        gc.collect()
        run(mode)
    return Point(name, meter.peak_bytes, work.flops, work.seconds)


def _on_fake(make: Make, change: Change | None = None) -> Run:
    def run(mode: TorchDispatchMode) -> None:
        with FakeTensorMode(allow_non_fake_inputs=True):
            network = on_cpu(make())
            forward = change(network) if change is not None else None
            with mode:
                loss_of(network, forward).backward()

    return run


def _on_meta(make: Make, change: Change) -> Run:
    """Quicker than fake tensors, and the same but for attention."""

    def run(mode: TorchDispatchMode) -> None:
        network = make()
        forward = change(network)
        with mode:
            loss_of(network, forward).backward()

    return run


def _best_sequential(name: str, make: Make, device: Device, quick: bool) -> Point | None:
    """`checkpoint_sequential` with the number of segments of least peak; of those, with least FLOPs."""
    most = min(n_stages(name, make()), _MOST_SEGMENTS)
    quickly = _on_fake if name in ATTENTION else _on_meta
    found: list[tuple[int, int, Change]] = []
    for k in range(2, most + 1, 4 if quick else 1):
        for inplace in (True, False):
            change = _cut(name, k, inplace)
            try:
                meter = StorageMeter()
                quickly(make, change)(meter)
                found.append((meter.peak_bytes, k, change))
                break
            except RuntimeError:  # in-place activations on a segment's input
                continue
    least = min((peak for peak, _, _ in found), default=0)
    points = [
        _point(f"sequential {k}", _on_fake(make, change), device) for peak, k, change in found if peak <= least * 1.001
    ]
    return min(points, key=lambda p: (p.peak_bytes, p.flops), default=None)


def _cut(name: str, segments: int, inplace: bool) -> Change:
    def change(network: Network) -> Callable[[], Any]:
        if not inplace:
            without_inplace(network.model)
        return sequential(name, network, segments)

    return change
