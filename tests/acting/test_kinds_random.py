"""Random ops and generators: what is recomputed draws what forward drew, and the streams go on as in a plain step."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lowtide
from lowtide.acting.ops import op_info
from tests.outcome import bits
from tests.plans import drop_everything
from tests.same import assert_same, made, traced


class Apply(nn.Module):
    def __init__(self, f: Callable[[Tensor], Tensor], d: int = 6) -> None:
        super().__init__()
        self.a, self.b, self.f = nn.Linear(d, d), nn.Linear(d, d), f

    def forward(self, x: Tensor) -> Tensor:
        return self.f(self.b(self.f(self.a(x)).sin())).tanh() * 2


DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda t: F.dropout(t, 0.3),
    "native_dropout": lambda t: torch.native_dropout(t, 0.3, True)[0],
    "feature dropout": lambda t: F.dropout1d(t.unsqueeze(0), 0.4)[0],
    "alpha dropout": lambda t: F.alpha_dropout(t, 0.3),
    "feature alpha dropout": lambda t: F.feature_alpha_dropout(t, 0.3),
    "rrelu": lambda t: F.rrelu(t, 0.1, 0.5, training=True),
    "rrelu_": lambda t: F.rrelu(t, 0.1, 0.5, training=True, inplace=True),
    "rand": lambda t: t * torch.rand(t.shape),
    "rand_like": lambda t: t * torch.rand_like(t),
    "randn": lambda t: t + torch.randn(t.shape),
    "randn_like": lambda t: t + torch.randn_like(t),
    "randint": lambda t: t * torch.randint(1, 5, t.shape),
    "randint_like": lambda t: t * torch.randint_like(t, 1, 5),
    "randperm": lambda t: t[:, torch.randperm(6)].sin(),
    "normal": lambda t: t + torch.normal(0.0, 1.0, t.shape),
    "normal of tensors": lambda t: t + torch.normal(t.detach(), t.detach().abs() + 0.1),
    "normal_": lambda t: t * torch.empty_like(t).normal_(),
    "uniform_": lambda t: t * torch.empty_like(t).uniform_(),
    "bernoulli": lambda t: t * torch.bernoulli(torch.full_like(t, 0.5)),
    "bernoulli_": lambda t: t * torch.empty_like(t).bernoulli_(0.5),
    "bernoulli_ of a tensor": lambda t: t * torch.empty_like(t).bernoulli_(t.detach().sigmoid()),
    "exponential_": lambda t: t * torch.empty_like(t).exponential_(),
    "cauchy_": lambda t: t + torch.empty_like(t).cauchy_().tanh(),
    "log_normal_": lambda t: t * torch.empty_like(t).log_normal_(),
    "geometric_": lambda t: t * torch.empty_like(t).geometric_(0.4),
    "random_": lambda t: t * torch.empty_like(t).random_(0, 4),
    "poisson": lambda t: t * torch.poisson(t.detach().abs() * 3),
    "binomial": lambda t: t * torch.binomial(torch.full_like(t, 5.0), t.detach().sigmoid()),
    "gamma": lambda t: t * torch._standard_gamma(t.detach().abs() + 0.5),
    "dirichlet": lambda t: t * torch._sample_dirichlet(t.detach().abs() + 0.5),
    "reparametrised gamma": lambda t: torch.distributions.Gamma(t.abs() + 0.5, 1.0).rsample(),
    "multinomial": lambda t: t[:, torch.multinomial(torch.ones(6), 6)].cos(),
    "gumbel": lambda t: F.gumbel_softmax(t, hard=True),
    "fractional pool": lambda t: F.pad(
        F.fractional_max_pool2d(t.view(1, 4, 2, 3), 2, output_size=1).view(4, 1), (0, 5)
    ),
    "attention": lambda t: F.scaled_dot_product_attention(*(t.view(1, 2, 4, 3),) * 3, dropout_p=0.3).reshape(4, 6),
    "noise in place on a view": lambda t: t * torch.zeros(4, 12)[:, ::2].normal_(),
    "like a tensor elsewhere": lambda t: t * torch.rand_like(torch.empty(4, 6, device="meta"), device="cpu"),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_step_that_draws(name: str) -> None:
    assert_same(lambda: (Apply(DRAWS[name]), (torch.randn(4, 6, requires_grad=True),), None))


def test_every_op_that_takes_a_generator_counts_as_random() -> None:
    missed: list[str] = []
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        packet, _, overload = name.removeprefix("aten::").partition(".")
        op: Any = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if not isinstance(op, torch._ops.OpOverload):
            continue
        takes = any("Generator" in str(a.type) for a in op._schema.arguments)
        if takes and not op_info(op).random:
            missed.append(name)
    assert missed == []


class OwnGenerator(nn.Module):
    """Draws from a generator of its own, from another one, and from the default one in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.one, self.two = torch.Generator().manual_seed(7), torch.Generator().manual_seed(8)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.a(x)) * torch.rand(4, 6, generator=self.one)
        x = x * torch.empty_like(x).normal_(generator=self.two) + torch.randn(4, 6)
        return torch.sigmoid(self.b(x)) * torch.bernoulli(torch.full((4, 6), 0.5), generator=self.one)


def test_generators_of_ones_own() -> None:
    step = traced(lambda: (OwnGenerator(), (torch.randn(4, 6),), None))
    results: list[Any] = []
    for plan in (None, drop_everything(step)):
        model, (x,), _ = made(lambda: (OwnGenerator(), (torch.randn(4, 6),), None))
        for _ in range(2):
            if plan is None:
                loss = model(x).sum()
            else:
                with lowtide.remat(plan):
                    loss = model(x).sum()
            loss.backward()
        results.append(
            [bits(p.grad) for p in model.parameters()]
            + [bits(g.get_state()) for g in (model.one, model.two, torch.default_generator)]
        )
    assert results[0] == results[1]


def test_a_generator_that_is_reseeded_in_forward() -> None:
    """As flash attention in Python does, and common-random-number tricks."""

    class Reseeds(Apply):
        def forward(self, x: Tensor) -> Tensor:
            x = torch.tanh(self.a(x)) * torch.rand(4, 6)
            state = torch.get_rng_state()
            torch.manual_seed(3)
            x = x * torch.rand(4, 6)
            torch.set_rng_state(state)
            with torch.random.fork_rng():
                x = torch.sin(self.b(x) * torch.rand(4, 6))
            return F.dropout(x, 0.5).exp()

    assert_same(lambda: (Reseeds(torch.sin), (torch.randn(4, 6),), None))


def test_draws_in_backward_go_on_where_forward_stopped() -> None:
    """A backward that draws itself (noise on gradients) gets the draws of a plain backward."""

    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: Tensor) -> Tensor:
            ctx.save_for_backward(t)
            return t.sin()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            (t,) = ctx.saved_tensors
            return g * t.cos() + torch.randn_like(g)

    assert_same(
        lambda: (Apply(lambda t: Noisy.apply(F.dropout(t, 0.3))), (torch.randn(4, 6),), None)  # pyright: ignore
    )


def test_tracing_and_planning_draw_nothing() -> None:
    model, (x,), _ = made(lambda: (OwnGenerator(), (torch.randn(4, 6),), None))
    random.seed(5)
    np.random.seed(5)

    def states() -> list[Any]:
        own = [bits(g.get_state()) for g in (model.one, model.two, torch.default_generator)]  # pyright: ignore
        return [*own, random.getstate(), np.random.get_state()[1].tobytes()]  # pyright: ignore

    before = states()
    lowtide.plan(model, (x,))
    assert states() == before


def test_python_and_numpy_draws_happen_once() -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.tanh(self.a(x)) * random.random()
            return torch.sigmoid(self.b(x)) * float(np.random.rand()) + random.gauss(0, 1)

    assert_same(lambda: (Layers(), (torch.randn(4, 6),), None))
