"""cost: seconds per op, measured: each kind of call is made on its own, on the device at hand.

A kind is an op with shapes, strides, types and plain arguments. Kinds repeat: a ResNet-50 step has 1,000 ops of 170
kinds. Nothing of a step's size is allocated, only the arguments of one call at a time. What was measured stays in a
file per device and torch version, so that a second plan for the same shapes takes no time for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore
from torch.utils._pytree import tree_leaves, tree_map

from lowtide.acting.measure import measure
from lowtide.acting.trace import trace
from lowtide.acting.workspace import Shape
from lowtide.errors import InputError
from lowtide.planning.cost import DEVICES, Device, device_named, roofline
from lowtide.planning.step import Step

# A call is repeated until so much time was spent on it, this often at least and at most.
_SPEND_S, _LEAST, _MOST = 0.02, 3, 30

# Once is enough for calls that take longer.
_LONG_S = 0.2


@dataclass(frozen=True)
class Cost:
    """What one kind of call takes: seconds, and bytes at its peak beyond what it leaves."""

    seconds: float
    workspace_bytes: int


@dataclass(frozen=True)
class Kind:
    """One call with its tensors replaced by their shapes."""

    func: Any
    args: Any
    kwargs: Any

    @property
    def key(self) -> str:
        """Tells kinds apart, in any process."""
        return f"{self.func} {self.args} {self.kwargs}"

    def make(self, device: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of such a call, with content: random between 0 and 1, whole numbers 0."""

        def real(x: Any) -> Any:
            if isinstance(x, Shape):
                return _filled(x, device)
            return device if isinstance(x, torch.device) else x

        args, kwargs = tree_map(real, (self.args, self.kwargs))
        return tuple(args), dict(kwargs)


def _filled(shape: Shape, device: torch.device) -> Tensor:
    held = 1 + sum((n - 1) * st for n, st in zip(shape.size, shape.stride, strict=True) if n > 0)
    if shape.dtype.is_floating_point and shape.dtype.itemsize >= 2:
        flat = torch.rand(held, device=device, dtype=torch.float32).to(shape.dtype)
    else:
        flat = torch.zeros(held, device=device, dtype=shape.dtype)
    return flat.as_strided(shape.size, shape.stride)


class Kinds:
    """Collects the kinds of a trace's calls: `kinds = Kinds(); step = lowtide.trace(model, args, observe=kinds)`."""

    def __init__(self) -> None:
        self.calls: list[Kind | None] = []

    def begin(self) -> None:
        """A trace begins."""
        self.calls.clear()

    def __call__(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        plain = all(t.layout is torch.strided for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor))
        shaped = tree_map(_shape_of, (args, kwargs)) if plain else None
        self.calls.append(Kind(func, *shaped) if shaped is not None else None)


def _shape_of(x: Any) -> Any:
    if isinstance(x, Tensor):
        return Shape(tuple(x.shape), x.stride(), x.dtype)
    return None if isinstance(x, torch.Generator) else x


# -- measuring ------------------------------------------------------------------------------------------------------


def time_call(kind: Kind, device: torch.device) -> Cost:
    """Make the call, a few times. Whatever it raises is passed on."""
    wait: Callable[[], None] = (lambda: torch.cuda.synchronize(device)) if device.type == "cuda" else _nothing
    fork = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
    with _disable_current_modes(), torch.no_grad(), fork:
        args, kwargs = kind.make(device)
        kind.func(*args, **kwargs)  # libraries choose their kernels
        seen = measure(lambda: kind.func(*args, **kwargs), device)
        workspace = max(0, seen.peak_bytes - seen.end_bytes)
        del seen
        times: list[float] = []
        begin = time.perf_counter()
        while len(times) < _LEAST or (time.perf_counter() - begin < _SPEND_S and len(times) < _MOST):
            wait()
            start = time.perf_counter()
            kind.func(*args, **kwargs)
            wait()
            times.append(time.perf_counter() - start)
            if times[-1] > _LONG_S:
                break
    return Cost(min(times), workspace)  # what else the machine does only adds to it


def _nothing() -> None:
    pass


# -- the file -------------------------------------------------------------------------------------------------------


def cache_path(device: torch.device) -> Path:
    """The file of what was measured on `device` with this torch: in `$XDG_CACHE_HOME/lowtide`, or `~/.cache`."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    what = f"{device_title(device)} {torch.get_num_threads()} threads" if device.type == "cpu" else device_title(device)
    name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{what} torch {torch.__version__}").strip("-").lower()
    return root / "lowtide" / "costs" / f"{name}.json"


def device_title(device: torch.device) -> str:
    """What people call the device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


class Cache:
    """Costs by kind, in memory and in a file. A file that cannot be read or written is done without."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.costs: dict[str, Cost] = {}
        if path is not None:
            try:
                stored: Mapping[str, Sequence[float]] = json.loads(path.read_text())
                self.costs = {k: Cost(float(s), int(w)) for k, (s, w) in stored.items()}
            except (OSError, ValueError, TypeError, AttributeError):
                self.costs = {}

    @staticmethod
    def name(kind: Kind) -> str:
        return hashlib.sha256(kind.key.encode()).hexdigest()[:24]

    def get(self, kind: Kind) -> Cost | None:
        return self.costs.get(self.name(kind))

    def put(self, kind: Kind, cost: Cost) -> None:
        self.costs[self.name(kind)] = cost

    def save(self) -> None:
        """Write the file, whole or not at all."""
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd, tmp = tempfile.mkstemp(dir=self.path.parent, prefix=".costs.")
            with os.fdopen(fd, "w") as f:
                json.dump({k: [c.seconds, c.workspace_bytes] for k, c in self.costs.items()}, f)
            os.replace(tmp, self.path)
        except OSError:
            return


# -- steps ----------------------------------------------------------------------------------------------------------


def measured(
    model: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: Any = None,
    device: str | torch.device | None = None,
    cache: Path | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Step:
    """Trace a step and measure what each kind of its ops takes on `device`: time and workspace.

    Args:
        model, args, kwargs, loss, optimizer: as for `lowtide.trace`.
        device: where to measure; None for the current CUDA device, or the CPU.
        cache: the file to read and write; None for the one of that device.
        progress: called with a word and a fraction in [0, 1].

    Returns:
        The step with `seconds` and `workspace_bytes`. Calls that cannot be made on their own (custom types, arguments
        that random numbers are not) get what a roofline says, in proportion to how right it is about the others.

    Raises:
        TraceError, InputError: as `trace`; if the device cannot be measured.
    """
    where = device_of(device)
    kinds = Kinds()
    step = trace(model, args, kwargs, loss=loss, optimizer=optimizer, progress=progress, observe=kinds)
    return costed(step, kinds, where, Cache(cache or cache_path(where)), progress)


def costed(
    step: Step,
    kinds: Kinds,
    device: torch.device,
    cache: Cache,
    progress: Callable[[str, float], None] | None = None,
) -> Step:
    """`step` with the costs of the calls that its trace saw.

    Raises:
        InputError: if these are not the calls of that step.
    """
    if len(kinds.calls) != len(step.ops):
        raise InputError(f"{len(kinds.calls)} calls were seen, but the step has {len(step.ops)} ops: trace it again")
    report = progress or _silent
    found: list[Cost | None] = []
    failed: set[str] = set()
    for n, kind in enumerate(kinds.calls):
        cost = cache.get(kind) if kind is not None else None
        if kind is not None and cost is None and kind.key not in failed:
            try:
                cost = time_call(kind, device)
                cache.put(kind, cost)
            except Exception:  # values that random ones are not, or no memory: the roofline says
                failed.add(kind.key)
        found.append(cost)
        report("measure", (n + 1) / len(kinds.calls))
    cache.save()
    guess = roofline(step, _roofline_of(device)).seconds
    known = [(c.seconds, g) for c, g in zip(found, guess, strict=True) if c is not None]
    scale = sum(c for c, _ in known) / sum(g for _, g in known) if known else 1.0
    return replace(
        step,
        seconds=tuple(scale * g if c is None else c.seconds for c, g in zip(found, guess, strict=True)),
        workspace_bytes=tuple(0 if c is None else c.workspace_bytes for c in found),
        meta={**step.meta, "costs": f"measured on {device_title(device)}"},
    )


def _silent(_: str, __: float) -> None:
    pass


def _roofline_of(device: torch.device) -> Device:
    try:
        return device_named(device_title(device))
    except InputError:
        return DEVICES["a100" if device.type == "cuda" else "cpu"]


def device_of(device: str | torch.device | None) -> torch.device:
    if device is None:
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    try:
        where = torch.device(device)
    except RuntimeError as e:
        raise InputError(f"{device!r} is no device that can be measured: use 'cpu' or 'cuda'") from e
    if where.type not in ("cpu", "cuda"):
        raise InputError(f"cannot measure on {str(where)!r}: use 'cpu' or a CUDA device")
    return torch.empty(0, device=where).device  # plain 'cuda' says which one


def device_at_hand() -> str:
    """The name of the roofline to plan for if none was given: that of the CUDA device here, else of a common GPU."""
    if torch.cuda.is_available():
        return _roofline_of(torch.device("cuda", torch.cuda.current_device())).name
    return "a100"
