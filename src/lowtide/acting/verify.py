"""`verify`: run a step both ways and tell whether a plan changes anything but memory and time."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from lowtide.acting import evidence
from lowtide.acting.evidence import Bits, Item
from lowtide.acting.loss import scalar_loss
from lowtide.acting.measure import measure
from lowtide.acting.optimizer import by_name
from lowtide.acting.sandbox import map_tensors, preserved_rng, tensors_of
from lowtide.acting.state import State, seed_everything
from lowtide.acting.workspace import traced_with_workspace
from lowtide.errors import InputError
from lowtide.planning.plan import Plan
from lowtide.planning.step import Phase

Loss = Callable[[Any], Tensor]

# Where two plain runs differ already, a planned one may be this many times as far away: a largest difference of a few
# numbers varies that much from pair to pair.
_NOISE_FACTOR = 10


@dataclass(frozen=True)
class Difference:
    """One place where the planned step is not the plain one.

    Attributes:
        kind: `loss`, `output`, `gradient`, `input gradient`, `parameter`, `buffer`, `attribute`, `input`,
            `random generator`.
        name: which: `layer1.0.conv1.weight`, `args[0]`.
        module: path of the module it belongs to ('' for the model itself); None for loss, outputs, inputs, generators.
        step: in which of the steps, from 0.
        max_abs: largest absolute difference; infinite if one is missing or of another shape, NaN if it is no number.
        sentence: all that in words.
    """

    kind: str
    name: str
    module: str | None
    step: int
    max_abs: float
    sentence: str

    def to_json(self) -> dict[str, Any]:
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        out["max_abs"] = self.max_abs if math.isfinite(self.max_abs) else repr(self.max_abs)
        return out


@dataclass(frozen=True)
class Verdict:
    """What `verify` found.

    Attributes:
        ok: nothing differs (beyond `tolerance`, if there is one).
        differences: what differs, in the order in which a step makes it: the first is the one to look at.
        compared: how many tensors, numbers and generator states were compared.
        tolerance: '' where all must be identical to the bit, else what was allowed, and why.
        steps: how many steps were run each way.
        device: what was measured, `'cpu'` or `'cuda:0'`.
        peak_bytes, baseline_peak_bytes: measured peak of the first step with and without the plan.
        predicted_peak_bytes, predicted_baseline_peak_bytes: what the plan says.
        seconds, baseline_seconds: median time of a step with and without the plan.
        recompute_ops, recompute_flops: what the plan runs again.
    """

    ok: bool
    differences: tuple[Difference, ...]
    compared: int
    tolerance: str
    steps: int
    device: str
    peak_bytes: int
    baseline_peak_bytes: int
    predicted_peak_bytes: int
    predicted_baseline_peak_bytes: int
    seconds: float
    baseline_seconds: float
    recompute_ops: int
    recompute_flops: int

    @property
    def first_module(self) -> str | None:
        """Path of the first module that differs ('' is the model itself), None if none does."""
        return next((d.module for d in self.differences if d.module is not None), None)

    def to_json(self) -> dict[str, Any]:
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        out["differences"] = [d.to_json() for d in self.differences]
        return {"format": 1, "kind": "lowtide.verdict", **out}

    def __repr__(self) -> str:
        from lowtide.report.text import describe_verdict

        return describe_verdict(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from lowtide.report.notebook import verdict_html

        return verdict_html(self)


def verify(
    model: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Loss | None = None,
    plan: Plan | None = None,
    steps: int = 1,
    optimizer: Any = None,
    seed: int = 0,
) -> Verdict:
    """Run the training step with and without a plan, from the same state, and compare bit for bit: loss, outputs,
    every gradient (also which are None), gradients of inputs that ask for one, parameters, buffers, tensors and
    numbers in plain attributes of modules, and all random generators.

    Three runs: a plain one that also warms up, the planned one and a plain one, both measured. Where the two plain
    ones differ (some CUDA kernels add in no fixed order) a tolerance is taken from how far, and stated in the verdict.
    The model, its inputs, the optimizer and the generators are left as they were found.

    Args:
        model: a module with real parameters, not on `meta`.
        args, kwargs: what it is called with.
        loss: output -> tensor with one element; see `lowtide.trace` for the default.
        plan: a plan for this step. By default the one of least peak, kernels' scratch included: measured on the CPU,
            see `workspace`; on CUDA it is not known.
        steps: how many training steps to run each way. Without an optimizer gradients add up over them.
        optimizer: an optimizer over the model's parameters, a callable that makes one from a list of parameters, or
            the name of a `torch.optim` class. Its step counts for the peak if the plan was made with one too.
        seed: for all random generators, before each run.

    Raises:
        InputError: if the model or its inputs are on `meta`, or steps < 1.
    """
    args, kwargs = tuple(args), dict(kwargs or {})
    if steps < 1:
        raise InputError(f"steps must be at least 1, not {steps}")
    for t in [*model.parameters(), *model.buffers(), *tensors_of((args, kwargs))]:
        if t.device.type == "meta":
            raise InputError("verify runs the model for real, and this one has tensors on 'meta': build it on a device")
    if plan is None:
        plan = _planned(model, args, kwargs, loss, optimizer)
    leaves: tuple[tuple[Any, ...], dict[str, Any]] = map_tensors((args, kwargs), _leaf)
    runner = _Runner(model, *leaves, loss, optimizer, steps, seed, counts_optimizer=_has_optimizer(plan))
    with preserved_rng():
        state = State(model, leaves, loss, optimizer)
        try:
            reference = runner.run(None, measured=False)
            state.restore()
            planned = runner.run(plan, measured=True)
            state.restore()
            plain = runner.run(None, measured=True)
        finally:
            state.restore()
    noise = _Noise.between(reference, plain)
    differences = _differences(reference, planned, noise)
    return Verdict(
        ok=not differences,
        differences=tuple(differences),
        compared=sum(map(len, reference.items)),
        tolerance=noise.sentence,
        steps=steps,
        device=planned.device,
        peak_bytes=planned.peak_bytes,
        baseline_peak_bytes=plain.peak_bytes,
        predicted_peak_bytes=plan.peak_bytes,
        predicted_baseline_peak_bytes=plan.baseline_peak_bytes,
        seconds=planned.seconds,
        baseline_seconds=plain.seconds,
        recompute_ops=plan.recompute_ops,
        recompute_flops=plan.recompute_flops,
    )


def _planned(model: nn.Module, args: Any, kwargs: Any, loss: Loss | None, optimizer: Any) -> Plan:
    from lowtide.acting.api import plan

    return plan(traced_with_workspace(model, args, kwargs, loss=loss, optimizer=optimizer))


def _leaf(t: Tensor) -> Tensor:
    """Inputs that another graph made are cut off from it: three backwards cannot run through it."""
    return t if t.is_leaf else t.detach().requires_grad_(t.requires_grad)


def _has_optimizer(plan: Plan) -> bool:
    return any(op.phase is Phase.OPTIMIZER for op in plan.step.ops)


@dataclass(frozen=True)
class _Run:
    """Per step what it left behind, and what the first one took."""

    items: list[list[Item]]
    peak_bytes: int
    device: str
    seconds: float


@dataclass(frozen=True)
class _Runner:
    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loss: Loss | None
    optimizer: Any
    steps: int
    seed: int
    counts_optimizer: bool

    def run(self, plan: Plan | None, *, measured: bool) -> _Run:
        seed_everything(self.seed)
        optimizer = self._optimizer()
        if optimizer is not None and self.counts_optimizer:
            self._prime(optimizer)
        items: list[list[Item]] = []
        seconds: list[float] = []
        peak, device = 0, "cpu"
        for i in range(self.steps):
            made: list[Item] = []
            counted = optimizer if self.counts_optimizer else None
            if measured and i == 0:
                found = measure(lambda m=made, o=counted: self._step(plan, m, o), self._device())
                peak, device = found.peak_bytes, found.device
                seconds.append(found.seconds)
            else:
                start = time.perf_counter()
                self._step(plan, made, counted)
                seconds.append(time.perf_counter() - start)
            if optimizer is not None and counted is None:
                optimizer.step()
            items.append([*made, *evidence.after_step(self.model, self.args, self.kwargs)])
            if optimizer is not None:
                optimizer.zero_grad()
        # the first step of several also carries the witness
        return _Run(items, peak, device, statistics.median(seconds[1:] or seconds))

    def _optimizer(self) -> torch.optim.Optimizer | None:
        made = self.optimizer
        if isinstance(made, str):
            made = by_name(made)
        if made is None or isinstance(made, torch.optim.Optimizer):
            return made
        return made([p for p in self.model.parameters() if p.requires_grad])

    def _prime(self, optimizer: torch.optim.Optimizer) -> None:
        """Let the optimizer make its state: a step that is planned with an optimizer finds it there."""
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        held = [p.grad for p in parameters]
        for p in parameters:
            p.grad = torch.zeros_like(p)
        optimizer.step()
        for p, grad in zip(parameters, held, strict=True):
            p.grad = grad

    def _device(self) -> torch.device | None:
        on = {p.device for p in self.model.parameters()}
        return on.pop() if len(on) == 1 else None

    def _step(self, plan: Plan | None, made: list[Item], optimizer: torch.optim.Optimizer | None) -> None:
        """Loss and outputs are copied out of torch's memory on the way: only what a training loop would hold lives."""
        with torch.enable_grad():
            with _under(plan):
                output = self.model(*self.args, **self.kwargs)
                scalar = scalar_loss(output, self.loss)
            made.append(Item("loss", "loss", None, Bits.of(scalar)))
            made.extend(evidence.outputs(output))
            del output
            scalar.backward()  # pyright: ignore[reportUnknownMemberType]
        if optimizer is not None:
            optimizer.step()


def _under(plan: Plan | None) -> Any:
    if plan is None:
        return nullcontext()
    from lowtide.acting.apply import remat

    return remat(plan)


@dataclass(frozen=True)
class _Noise:
    """How far two plain runs are apart: per (step, kind, name) the largest absolute difference, where there is one."""

    spread: dict[tuple[int, str, str], float]
    relative: float
    sentence: str

    @staticmethod
    def between(a: _Run, b: _Run) -> _Noise:
        spread: dict[tuple[int, str, str], float] = {}
        relative: list[float] = []
        for i, (left, right) in enumerate(zip(a.items, b.items, strict=True)):
            others = {(x.kind, x.name): x.content for x in right}
            for x in left:
                y = others.get((x.kind, x.name))
                if isinstance(x.content, Bits) and isinstance(y, Bits) and not x.content.same(y) and x.content.is_float:
                    spread[i, x.kind, x.name] = apart = x.content.distance(y)
                    relative.append(apart / (x.content.scale() or 1.0))
        if not spread:
            return _Noise({}, 0.0, "")
        typical = statistics.median(relative)
        return _Noise(
            spread,
            typical,
            f"Two plain runs differ in {len(spread):,} places already, by {typical:.1e} of the largest value in the "
            f"median: this step is not deterministic. A planned one may differ by {_NOISE_FACTOR} times that.",
        )

    def allows(self, step: int, item: Item, apart: float) -> bool:
        if not self.spread or not isinstance(item.content, Bits) or not item.content.is_float:
            return False
        own = self.spread.get((step, item.kind, item.name), 0.0)
        return apart <= _NOISE_FACTOR * max(own, self.relative * item.content.scale())


def _differences(plain: _Run, planned: _Run, noise: _Noise) -> list[Difference]:
    out: list[Difference] = []
    for i, (left, right) in enumerate(zip(plain.items, planned.items, strict=True)):
        others = {(x.kind, x.name): x for x in right}
        for x in left:
            y = others.pop((x.kind, x.name), None)
            found = _compare(x, y, i)
            if found is not None and not noise.allows(i, x, found.max_abs):
                out.append(found)
        for y in others.values():
            text = f"{y.kind} {y.name}: only the planned step has it"
            out.append(Difference(y.kind, y.name, y.module, i, math.inf, text))
    return out


def _compare(x: Item, y: Item | None, step: int) -> Difference | None:
    def differs(how: str, max_abs: float = math.inf) -> Difference:
        when = f" (step {step})" if step else ""
        return Difference(x.kind, x.name, x.module, step, max_abs, f"{x.kind} {x.name}{when}: {how}")

    if y is None:
        return differs("only the plain step has it")
    a, b = x.content, y.content
    if isinstance(a, Bits) and isinstance(b, Bits):
        if a.same(b):
            return None
        if a.shape != b.shape or a.dtype != b.dtype:
            return differs(f"{a.dtype} {list(a.shape)} without the plan, {b.dtype} {list(b.shape)} with it")
        if x.kind == "random generator":
            return differs("it stands at another place", math.nan)
        apart = a.distance(b)
        share = int((a.raw != b.raw).sum()) / max(a.raw.size, 1)
        return differs(f"off by up to {apart:.3e} (largest value {a.scale():.3e}), in {share:.1%} of it", apart)
    if a is None or b is None:
        if a is b:
            return None
        return differs(
            f"None {'without' if a is None else 'with'} the plan, a tensor {'with' if a is None else 'without'} it"
        )
    if type(a) is type(b) and a == b:
        return None
    if x.kind == "random generator":
        return differs("it stands at another place", math.nan)
    return differs(f"{a!r} without the plan, {b!r} with it", math.nan)
