"""fit: how large a batch fits into some memory, without a plan, with a quick one, and with the smallest one.

Nothing of the step's size is allocated. Two traces tell how the step grows (`planning.growth`), plans are made on grown
steps, and each answer is confirmed by a trace at its size. A size fits if everything does: parameters, gradients,
optimizer state, inputs, loss, activations, less a margin for what no trace shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lowtide.acting.cost import device_at_hand
from lowtide.acting.sandbox import map_tensors, tensors_of
from lowtide.acting.trace import trace
from lowtide.errors import InputError, TraceError
from lowtide.planning.cost import roofline
from lowtide.planning.growth import Growth, Lists, largest, total_peak_bytes
from lowtide.planning.judge import judge
from lowtide.planning.plan import Plan
from lowtide.planning.solve.budget import Ground
from lowtide.planning.step import Category, Step
from lowtide.units import format_bytes, format_percent, format_seconds, parse_bytes

Progress = Callable[[str, float], None]
MakeArgs = Callable[[int], Any]

# What is left free of the memory: the allocator rounds sizes and leaves gaps, kernels want workspace, the context and
# libraries have buffers of their own.
MARGIN = 0.06

# Units of memory for the planner: many sizes are planned, and a coarse plan is refined anyway.
_SLOTS = 300


@dataclass(frozen=True)
class Size:
    """The largest size that fits in one way.

    Attributes:
        n: the size; 0 if not even 1 fits.
        plan: the plan at that size; None without one, or if nothing fits.
        total_peak_bytes: the peak with everything in, by a trace at this size.
        step_s, added_s: estimated seconds of the step without a plan, and those that the plan adds.
    """

    n: int
    plan: Plan | None
    total_peak_bytes: int
    step_s: float
    added_s: float

    @property
    def per_second(self) -> float:
        """Samples a second."""
        return self.n / (self.step_s + self.added_s) if self.n else 0.0

    @property
    def slowdown(self) -> float:
        return self.added_s / self.step_s if self.step_s else 0.0

    def to_json(self) -> dict[str, Any]:
        names = ("n", "total_peak_bytes", "step_s", "added_s", "per_second", "slowdown")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Fit:
    """What fits.

    Attributes:
        memory_bytes: what was asked about; a share `margin` of it is left free.
        plain: without a plan.
        quick: with the quickest plan at the largest size at which one adds at most `quick_slowdown` of the time.
        largest: with the quickest plan at the largest size at which one adds at most `max_slowdown`.
        fixed_bytes: what does not grow, by category.
        grown_bytes: the peak without a plan, per unit of size.
        device: whose roofline times were reckoned with.
    """

    memory_bytes: int
    margin: float
    plain: Size
    quick: Size
    largest: Size
    quick_slowdown: float
    max_slowdown: float
    fixed_bytes: Mapping[Category, int]
    grown_bytes: int
    device: str

    def to_json(self) -> dict[str, Any]:
        return {
            "format": 1,
            "kind": "lowtide.fit",
            "memory_bytes": self.memory_bytes,
            "margin": self.margin,
            "device": self.device,
            "plain": self.plain.to_json(),
            "quick": {"max_slowdown": self.quick_slowdown, **self.quick.to_json()},
            "largest": {"max_slowdown": self.max_slowdown, **self.largest.to_json()},
            "fixed_bytes": {c.value: n for c, n in self.fixed_bytes.items()},
            "grown_bytes": self.grown_bytes,
        }

    def __repr__(self) -> str:
        rows = [["", "size", "peak, everything in", "added time", "", "step", "per second"]]
        names = (
            ("no plan", self.plain),
            (f"at most {format_percent(self.quick_slowdown)} more time", self.quick),
            (f"at most {format_percent(self.max_slowdown)} more time", self.largest),
        )
        for name, size in names:
            if not size.n:
                rows.append([name, "0", "does not fit", "", "", "", ""])
                continue
            rows.append(
                [
                    name,
                    f"{size.n:,}",
                    format_bytes(size.total_peak_bytes),
                    format_seconds(size.added_s) if size.plan else "",
                    format_percent(size.slowdown) if size.plan else "",
                    format_seconds(size.step_s + size.added_s),
                    f"{size.per_second:,.1f}",
                ]
            )
        width = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        table = [
            "  ".join(
                c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in enumerate(zip(row, width, strict=True))
            ).rstrip()
            for row in rows
        ]
        fixed = ", ".join(f"{c.value} {format_bytes(n)}" for c, n in self.fixed_bytes.items() if n)
        return "\n".join(
            [
                f"What fits into {format_bytes(self.memory_bytes)}, {format_percent(self.margin)} of it left free for "
                "workspace, gaps and libraries",
                "",
                *table,
                "",
                f"does not grow: {fixed or 'nothing'}",
                f"without a plan each unit of size takes {format_bytes(self.grown_bytes)} more at the peak",
                f"times: roofline of {self.device}",
            ]
        )


def fit(
    model: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    memory: int | str,
    make_args: MakeArgs | None = None,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: Any = None,
    dtype: torch.dtype | None = None,
    grow: int = 0,
    device: str | None = None,
    margin: float = MARGIN,
    quick_slowdown: float = 0.1,
    max_slowdown: float = 0.34,
    progress: Progress | None = None,
) -> Fit:
    """The largest batch (or length) whose training step fits into `memory`.

    Args:
        model: on any device, `meta` included; it is left as it was found.
        args, kwargs: one call of it. Tensors with the first one's size in dimension `grow` grow along.
        memory: bytes, or text such as `'24GiB'`.
        make_args: size -> args, or (args, kwargs), in place of args and kwargs, where inputs are not so simple.
        loss, optimizer: as for `lowtide.trace`.
        dtype: type to which floating point inputs and the model are taken to be converted: only on `meta`.
        grow: the dimension that grows: 0 for the batch, 1 for the length of sequences.
        device: whose roofline to reckon times with; see `lowtide.plan`.
        margin: share of the memory to leave free.
        quick_slowdown, max_slowdown: what plans may add to the time of a step, for the two sizes with a plan.
        progress: called with a word and a fraction in [0, 1].

    Raises:
        InputError: if the memory or the arguments make no sense, or the model does not grow with them.
        TraceError: if the step cannot be traced.
    """
    memory_bytes = parse_bytes(memory)
    if not 0 <= margin < 1:
        raise InputError(f"margin={margin!r}: it is a share of the memory, at least 0 and less than 1")
    if dtype is not None:
        model = _converted(model, dtype)
    make, first = (make_args, 2) if make_args is not None else _maker(args, kwargs or {}, grow, dtype)
    search = _Search(
        model, make, loss, optimizer, int(memory_bytes * (1 - margin)), device or device_at_hand(), progress
    )
    search.start(first)
    plain = search.plain()
    quick = search.planned(quick_slowdown, plain.n, 0.3)
    most = search.planned(max_slowdown, max(plain.n, quick.n), 0.65)
    fixed = {c: search.growth.at(0).category_bytes[c] for c in _FIXED}
    grown = search.growth.at(101), search.growth.at(100)
    return Fit(
        memory_bytes=memory_bytes,
        margin=margin,
        plain=plain,
        quick=quick,
        largest=most,
        quick_slowdown=quick_slowdown,
        max_slowdown=max_slowdown,
        fixed_bytes=fixed,
        grown_bytes=total_peak_bytes(grown[0], None) - total_peak_bytes(grown[1], None),
        device=search.device,
    )


_FIXED = (Category.PARAMETER, Category.BUFFER, Category.GRADIENT, Category.OPTIMIZER)


class _Search:
    """Sizes against one limit."""

    def __init__(
        self,
        model: nn.Module,
        make: MakeArgs,
        loss: Callable[[Any], Tensor] | None,
        optimizer: Any,
        limit: int,
        device: str,
        progress: Progress | None,
    ) -> None:
        self.model, self.make, self.loss, self.optimizer = model, make, loss, optimizer
        self.limit, self.device = limit, device
        self.report = progress or _silent
        self.traced: dict[int, Step] = {}
        self.growth: Growth

    def start(self, first: int) -> None:
        """Trace at two sizes."""
        small, large = max(1, first), 2 * max(1, first)
        step = self.trace(small)
        try:
            grown = self.trace(large)
        except TraceError as e:
            raise TraceError(f"{e} (that was at size {large}: inputs, loss and labels must be of any size)") from e
        self.growth = Growth(step, small, grown, large)
        self.report("trace", 0.1)

    def trace(self, n: int) -> Step:
        """The step at size n, as traced."""
        if n not in self.traced:
            made = self.make(n)
            split = isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], dict)  # pyright: ignore[reportUnknownArgumentType]
            args, kwargs = made if split else (made, {})  # pyright: ignore[reportUnknownVariableType]
            if isinstance(args, Tensor):
                args = (args,)
            step = trace(self.model, tuple(args), kwargs, loss=self.loss, optimizer=self.optimizer)  # pyright: ignore[reportUnknownArgumentType]
            self.traced[n] = roofline(step, self.device)
        return self.traced[n]

    def fits(self, step: Step, lists: Lists | None) -> bool:
        return total_peak_bytes(step, lists) <= self.limit

    def confirmed(self, n: int, lists: Lists | None) -> int:
        """n, or as much less as traces say."""
        while n > 0 and not self.fits(self.trace(n), lists):
            n -= max(1, n // 200)
        return n

    def plain(self) -> Size:
        n = largest(lambda k: self.fits(self.growth.at(k), None), self._guess(None))
        n = self.confirmed(n, None)
        self.report("fit", 0.2)
        if not n:
            return Size(0, None, 0, 0.0, 0.0)
        step = self.trace(n)
        return Size(n, None, total_peak_bytes(step, None), step.total_seconds, 0.0)

    def _guess(self, lists: Lists | None) -> int:
        """Where the peak, if it grew evenly, would meet the limit."""
        a, b = (total_peak_bytes(self.growth.at(k), lists) for k in (100, 200))
        return max(1, (self.limit - a) * 100 // max(1, b - a) + 100)

    def planned(self, max_slowdown: float, at_least: int, done: float) -> Size:
        """The largest size for plans within a limit on time, and the quickest plan there."""
        n, before, lists = at_least, at_least, None
        for k in range(3):  # a plan made for a larger size fits a larger size
            ground = Ground(roofline(self.growth.at(max(1, n)), self.device), slots=_SLOTS)
            found = ground.least_peak(0.99 * max_slowdown)  # at the size that is traced it may add a little more
            new: Lists = (found.keep, found.runs)
            reach = largest(self._fits_with(new), self._guess(new))
            self.report("fit", done + 0.07 * (k + 1))
            if lists is not None and reach <= n:
                if self._slowdown(n, lists) > max_slowdown:  # it was made for a smaller size, where it adds less
                    n, lists = reach, new
                break
            n, before, lists = max(n, reach), n, new
            if n <= 1.01 * before:
                break
        else:
            if lists is not None and self._slowdown(n, lists) > max_slowdown:
                n = before
        n = self.confirmed(n, lists)
        if not n or lists is None:
            return Size(0, None, 0, 0.0, 0.0)
        plan = self._quickest(n, lists)
        return Size(n, plan, plan.total_peak_bytes, plan.step.total_seconds, plan.added_s)

    def _quickest(self, n: int, lists: Lists) -> Plan:
        """The quickest plan found that fits at size n: `lists` fit, but there may be quicker ones."""
        step = self.trace(n)
        ground = Ground(step, slots=_SLOTS)
        quickest = ground.solve(self.limit - step.standing_bytes, tries=ground.tries // 4)
        if quickest.fits and quickest.added_s <= _seconds(step, lists):
            lists = quickest.keep, quickest.runs
        return judge(step, *lists, "budget", quickest.status)

    def _slowdown(self, n: int, lists: Lists) -> float:
        """What a plan's lists add at size n, as a fraction of the step's seconds."""
        step = roofline(self.growth.at(n), self.device)
        return _seconds(step, lists) / step.total_seconds

    def _fits_with(self, lists: Lists) -> Callable[[int], bool]:
        return lambda n: self.fits(self.growth.at(n), lists)


def _seconds(step: Step, lists: Lists) -> float:
    return sum(step.seconds[o] for ops in lists[1].values() for o in ops)


def _silent(_: str, __: float) -> None:
    pass


def _converted(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The model in another type, without touching the user's: only where that costs no memory."""
    if any(p.device.type != "meta" for p in model.parameters()):
        raise InputError(f"dtype={dtype}: convert the model itself, or build it on 'meta'")
    return model.to(dtype)


def _maker(
    args: Sequence[Any], kwargs: Mapping[str, Any], grow: int, dtype: torch.dtype | None
) -> tuple[MakeArgs, int]:
    """Size -> arguments of that size, from one call's; and that call's size, 2 at least."""
    tensors = tensors_of((tuple(args), dict(kwargs)))
    growing = [t for t in tensors if t.dim() > grow]
    if not growing:
        raise InputError(f"no input has a dimension {grow} that could grow: pass make_args, size -> arguments")
    size = growing[0].shape[grow]

    def of_size(n: int) -> Callable[[Tensor], Tensor]:
        def resized(t: Tensor) -> Tensor:
            kind = dtype if dtype is not None and t.is_floating_point() else t.dtype
            shape = list(t.shape)
            if t.dim() > grow and t.shape[grow] == size:
                shape[grow] = n
            where = "meta" if t.device.type in ("cpu", "meta") else t.device
            return torch.empty(shape, dtype=kind, device=where, requires_grad=t.requires_grad)

        return resized

    def make(n: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return map_tensors((tuple(args), dict(kwargs)), of_size(n))

    return make, max(2, min(size, 64))
