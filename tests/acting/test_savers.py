"""Signs and shapes are enough for the nodes that look at them alone. All else that saves the same tensor gets it whole:
the trace must not take the one for the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lowtide
from lowtide.planning.step import Step
from tests.functions import SavesAndViews


class _SavesResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.relu()
        ctx.save_for_backward(y)
        return y  # no op between the ReLU and the save

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return g * ctx.saved_tensors[0]


class _SavesResultWithGrad(torch.autograd.Function):
    """As checkpoints by hand do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        with torch.enable_grad():
            y = (x.detach() * 1).relu()
        ctx.save_for_backward(y)
        return y.detach()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return g * ctx.saved_tensors[0]


class _SavesInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return F.max_pool2d(x, 2)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        (x,) = ctx.saved_tensors
        return x * F.interpolate(g, scale_factor=2.0)


class Of(nn.Module):
    """A function of a tensor that needs a gradient."""

    def __init__(self, f: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.f, self.scale = f, nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.f(x * self.scale)


def traced(f: Callable[[Tensor], Tensor]) -> Step:
    return lowtide.trace(Of(f), (torch.randn(2, 3, 16, 16),), loss=lambda y: y.sum())


def codecs(f: Callable[[Tensor], Tensor]) -> Counter[str]:
    return Counter(s.codec for s in traced(f).saves if s.codec)


@pytest.mark.parametrize(
    ("f", "want"),
    [
        (F.relu, {"nonpositive/4": 1}),
        (lambda x: F.relu(x, inplace=True), {"nonpositive/4": 1}),
        (lambda x: F.relu(x.double()), {"nonpositive/8": 1}),
        (lambda x: F.leaky_relu_(x, 0.2), {"positive/4": 1}),
        (lambda x: F.max_pool2d(x, 2), {"shape": 1, "index/1": 1}),
        (lambda x: F.adaptive_max_pool2d(x, 4), {"shape": 1, "index/1": 1}),
        (lambda x: F.max_pool3d(x, 2), {"shape": 1, "index/2": 1}),
        (lambda x: F.avg_pool2d(x, 2), {"shape": 1}),
        (lambda x: F.adaptive_avg_pool2d(x, 2), {"shape": 1}),
        (lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), {"shape": 1}),
        (lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"), {"shape": 1}),
        (lambda x: F.fractional_max_pool2d(x, 2, output_size=5), {"shape": 1, "index/1": 1}),
        (lambda x: F.dropout(x, 0.3), {"two/4": 1}),
        (lambda x: torch.native_dropout(x, 0.3, True)[0], {"bits": 1}),
        (lambda x: x.masked_fill(x > 0, 1.0), {"bits": 1}),
        (lambda x: torch.where(x > 0, x, 0.0), {"bits": 1}),
        (lambda x: F.max_pool2d(F.relu(x), 2), {"nonpositive/4": 1, "shape": 1, "index/1": 1}),
    ],
)
def test_what_is_enough(f: Callable[[Tensor], Tensor], want: dict[str, int]) -> None:
    assert codecs(f) == want


@pytest.mark.parametrize(
    "f",
    [
        torch.tanh,
        lambda x: x * x,
        lambda x: F.leaky_relu(x, 0.2),  # saves its argument
        lambda x: F.gelu(x),
        _SavesResult.apply,
        _SavesResultWithGrad.apply,
        lambda x: x * torch.rand_like(x).bernoulli_(0.5),  # no noise of dropout, as far as one can tell
    ],
)
def test_all_else_is_wanted_whole(f: Callable[[Tensor], Tensor]) -> None:
    assert codecs(f) == {}


def test_a_function_that_pools_gets_its_input_whole() -> None:
    assert codecs(lambda x: _SavesInput.apply(x * 1)) == {}


def test_a_save_that_went_to_other_hooks_does_not_count() -> None:
    def f(x: Tensor) -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            y = F.relu(x)
        return SavesAndViews.apply(y)

    assert codecs(f) == {}


def test_an_op_that_saves_the_result_of_a_relu_gets_it_whole() -> None:
    step = traced(lambda x: (lambda y: y * y)(F.relu(x)))
    assert sorted(s.codec for s in step.saves if s.value == step.saves[-1].value) == ["", "", "nonpositive/4"]


def test_without_a_gradient_nothing_is_said() -> None:
    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            y = F.relu(x)
        return _SavesResult.apply(x) + y

    assert codecs(f) == {}


def test_what_is_written_over_before_backward_asks_is_wanted_whole() -> None:
    def f(x: Tensor) -> Tensor:
        y = F.relu(x)
        y.data.add_(1.0)  # unseen by autograd: its backward reads what is there then
        return y * 2

    step = traced(f)
    assert all(not s.codec for s in step.saves if step.values[s.value].version > 0)
