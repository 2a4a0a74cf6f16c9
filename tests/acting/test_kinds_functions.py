"""Custom autograd functions and custom ops, in all the ways they misbehave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.same import assert_same


class Apply(nn.Module):
    def __init__(self, f: Callable[[Tensor], Any], d: int = 6) -> None:
        super().__init__()
        self.a, self.b, self.f = nn.Linear(d, d), nn.Linear(d, d), f

    def forward(self, x: Tensor) -> Tensor:
        return self.f(torch.tanh(self.b(self.f(torch.tanh(self.a(x)))))).sin() * 2


class AsksTwice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        ctx.save_for_backward(t, t * 2)
        return t.sin()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * ctx.saved_tensors[0].cos() + 0 * ctx.saved_tensors[1] + 0 * ctx.saved_tensors[0]


class SavesOutputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor) -> tuple[Tensor, Tensor]:
        a, b = t.sigmoid(), t.exp()
        ctx.save_for_backward(a, b)
        return a, b

    @staticmethod
    def backward(ctx: Any, ga: Tensor, gb: Tensor) -> Any:
        a, b = ctx.saved_tensors
        return ga * a * (1 - a) + gb * b


class KeepsOnContext(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        ctx.hidden, ctx.list = t.cos(), [t * 1, {"x": t.sin()}]
        return ctx.list[1]["x"].clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * ctx.hidden + 0 * ctx.list[0]


class WorksInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        t.tanh_()
        ctx.mark_dirty(t)
        ctx.save_for_backward(t)
        return t

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (t,) = ctx.saved_tensors
        return g * (1 - t * t)


class HandsOnItsSavedTensor(torch.autograd.Function):
    """Its gradient is the saved tensor itself, written to afterwards by its own backward."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        ctx.save_for_backward(t * 0.5)
        return t * t / 4

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (half,) = ctx.saved_tensors
        return half


class WritesToItsSavedTensor(torch.autograd.Function):
    """A rude one: works in place on what it had saved."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        ctx.save_for_backward(t.cos())
        return t.sin()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (c,) = ctx.saved_tensors
        return c.mul_(g)


class SavesViews(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        big = torch.stack([t, t.sin(), t.cos()])
        ctx.save_for_backward(big[2], big[0].t(), big[:, 1])
        return big[1]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        c, t, rows = ctx.saved_tensors
        return g * c + 0 * t.t() + 0 * rows[2]


class Picks(torch.autograd.Function):
    """Integer results, not differentiable ones, and gradients that may be missing."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = t.sort(1)
        ctx.mark_non_differentiable(indices)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(indices)
        return values, indices

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, _: Any) -> Any:
        if g is None:
            return None
        (indices,) = ctx.saved_tensors
        return torch.zeros_like(g).scatter_(1, indices, g)


class Straight(torch.autograd.Function):
    """Returns its input."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        return t.view_as(t)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * 0.5


class Newer(torch.autograd.Function):
    """With `setup_context`."""

    @staticmethod
    def forward(t: Tensor, k: float) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return t * k, t.sin()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.k = inputs[1]
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor) -> Any:
        t, s = ctx.saved_tensors
        return g * ctx.k + h * t.cos() + 0 * s, None


class RunsAGraphOfItsOwn(torch.autograd.Function):
    """Reversible blocks and deep equilibrium models: forward without a graph, backward builds one and runs it."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(t, w)
        return torch.tanh(t @ w)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        t, w = (s.detach().requires_grad_() for s in ctx.saved_tensors)
        with torch.enable_grad():
            y = torch.tanh(t @ w)
        torch.autograd.backward(y, g)
        return t.grad, w.grad


WEIGHT = torch.randn(6, 6, generator=torch.Generator().manual_seed(1), requires_grad=True)

FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "asks twice": AsksTwice.apply,
    "saves outputs": lambda t: sum(SavesOutputs.apply(t)),
    "keeps on its context": KeepsOnContext.apply,
    "works in place": lambda t: WorksInPlace.apply(t * 1.5),
    "works in place on a view": lambda t: WorksInPlace.apply((t * 1.5).view(2, 12)).view(4, 6),
    "hands on its saved tensor": HandsOnItsSavedTensor.apply,
    "writes to its saved tensor": WritesToItsSavedTensor.apply,
    "saves views": SavesViews.apply,
    "picks": lambda t: (lambda v, i: v + i)(*Picks.apply(t)),
    "straight through": Straight.apply,
    "newer": lambda t: sum(Newer.apply(t, 0.3)),
    "newer, one output": lambda t: Newer.apply(t, 0.3)[1],
    "a graph of its own": lambda t: RunsAGraphOfItsOwn.apply(t.sin(), WEIGHT),
    "nested": lambda t: AsksTwice.apply(WorksInPlace.apply(SavesViews.apply(t) * 1)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_custom_function(name: str) -> None:
    WEIGHT.grad = None
    assert_same(lambda: (Apply(FUNCTIONS[name]), (torch.randn(4, 6, requires_grad=True),), None))


# -- custom ops -----------------------------------------------------------------------------------------------------


@torch.library.custom_op("lowtide_tests::noisy_scale", mutates_args=())
def noisy_scale(t: Tensor) -> Tensor:
    """Depends on something that is no argument: how often it was called."""
    CALLS.append(1)
    return t * (1 + len(CALLS))


CALLS: list[int] = []
noisy_scale.register_fake(torch.empty_like)
noisy_scale.register_autograd(
    lambda ctx, g: g * ctx.saved_tensors[0].cos(),  # pyright: ignore
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),  # pyright: ignore
)


@torch.library.custom_op("lowtide_tests::add_into", mutates_args={"out"})
def add_into(t: Tensor, out: Tensor) -> None:
    """Fills a tensor that the caller made."""
    out.numpy()[:] += t.detach().numpy() * 2


add_into.register_fake(lambda t, out: None)


def filled(t: Tensor) -> Tensor:
    out = torch.empty_like(t)
    out.zero_()
    add_into(t.detach(), out)
    return t.tanh() * out.sin()


@pytest.mark.parametrize("f", [noisy_scale, filled], ids=["depends on more", "fills its argument"])
def test_a_custom_op(f: Callable[[Tensor], Any]) -> None:
    def make() -> Any:
        CALLS.clear()
        return Apply(lambda t: f(t).tanh() * t), (torch.randn(4, 6, requires_grad=True),), None

    step = assert_same(make)
    pinned = [op.name for op in step.ops if "custom op" in op.pinned]
    assert len(pinned) >= 2
