"""Precisions, autocast and scaling, complex and integer values, and tensors that are not plain strided ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lowtide
from lowtide.planning.plan import Plan
from tests.outcome import bits
from tests.plans import drop_everything, random_plan
from tests.same import Made, assert_same, made


class Apply(nn.Module):
    def __init__(self, f: Callable[[Tensor], Tensor], d: int = 6, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.a, self.b, self.f = nn.Linear(d, d, dtype=dtype), nn.Linear(d, d, dtype=dtype), f

    def forward(self, x: Tensor) -> Tensor:
        return self.f(self.b(self.f(self.a(x)).sin())).tanh() * 2


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128], ids=str
)
def test_other_types(dtype: torch.dtype) -> None:
    def make() -> Made:
        model = Apply(lambda t: t.sigmoid() * t.exp() + 0.5, dtype=dtype)
        return model, (torch.randn(4, 6, dtype=dtype, requires_grad=True),), lambda y: y.abs().square().sum()

    assert_same(make)


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "types mixed": lambda t: (t.half().float() * t.double()).to(torch.bfloat16).float() + t,
    "integers": lambda t: t * t.argsort(1).add(1) + (t > 0).long().cumsum(1),
    "booleans": lambda t: t.where(t > 0, t.exp()) * (t > 0.5).logical_not(),
    "scalars": lambda t: t * t.sum() * 0.1 + t.mean() * 2.0 + torch.tensor(1.5) * t.norm(),
    "a scalar alone": lambda t: t + (t.mean() * 2.0).exp() * 3,
    "integers and floats": lambda t: t * (torch.arange(6) / 2 + 0.5),
    "complex": lambda t: torch.complex(t, t.sin()).mul(1 + 2j).exp().abs(),
    "fourier": lambda t: torch.fft.irfft(torch.fft.rfft(t, dim=1) * (1 - 0.5j), n=6, dim=1) + torch.fft.fft(t).imag,
    "lazy conjugates": lambda t: (torch.complex(t, t).conj() * torch.complex(t.cos(), t)).imag * t,
    "lazy negatives": lambda t: torch.complex(t, t.sin()).conj().imag * t,
    "viewed as real": lambda t: torch.view_as_real(torch.polar(t.abs(), t)).sum(-1).sigmoid(),
    "viewed as complex": lambda t: torch.view_as_complex(t.sin().view(4, 3, 2)).abs().repeat(1, 2) * t,
    "another type of the same memory": lambda t: t * (t.detach().clone().view(torch.int32) & 255),
    "quantized by hand": lambda t: t + (torch.fake_quantize_per_tensor_affine(t, 0.1, 0, -8, 7) - t).detach(),
    "fake quantize": lambda t: torch.fake_quantize_per_tensor_affine(t, 0.1, 0, -8, 7).sin() * t,
    "channels last": lambda t: F.conv2d(
        t.view(1, 4, 2, 3).contiguous(memory_format=torch.channels_last), torch.ones(4, 4, 1, 1)
    ).reshape(4, 6) * t,
    "linear algebra": lambda t: torch.linalg.qr(t)[0] @ torch.linalg.qr(t)[1] + torch.linalg.svdvals(t).sum(),
    "solve": lambda t: torch.linalg.solve(t.t() @ t + torch.eye(6) * 3, t.t()).t(),
    "dense from sparse": lambda t: torch.sparse.mm(torch.eye(4).to_sparse(), t.sin()) * t,
    "sparse from dense": lambda t: torch.sparse.mm(F.dropout(t.tanh(), 0.3).to_sparse(), torch.ones(6, 6)).exp() * t,
    "compressed": lambda t: (torch.eye(4).to_sparse_csr() @ t.sin()) * t,
    "an empty one": lambda t: torch.cat([t[:, :0].sin(), t.cos()], 1).exp() + t[:0].exp().sum(),
    "expanded": lambda t: t.mean(1, keepdim=True).sin().expand(4, 6) * t.exp(),
    "overlapping": lambda t: t.exp().view(-1).unfold(0, 4, 1).sin().sum() * t,
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_a_step_with(name: str) -> None:
    assert_same(lambda: (Apply(KINDS[name]), (torch.randn(4, 6, requires_grad=True),), None))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("inside", [True, False])
def test_autocast_and_scaling(dtype: torch.dtype, inside: bool) -> None:
    """Autocast in forward only, around a part of it, or around the whole; a scaled loss."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
            self.norm = nn.LayerNorm(6)

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype, enabled=inside):
                h = F.gelu(self.a(x))
                h = self.norm(self.b(h) + self.b(x))
                with torch.autocast("cpu", enabled=False):
                    h = torch.tanh(self.c(h.float()))
                return (self.c(h) @ h.t()).softmax(-1)

    model, (x,), _ = made(lambda: (Mixed(), (torch.randn(4, 6),), None))

    def loss(y: Tensor) -> Tensor:
        return y.float().square().sum()

    with torch.autocast("cpu", dtype, enabled=not inside):
        step = lowtide.trace(model, (x,), loss=loss)

    def once(plan: Plan | None) -> list[Any]:
        model, (x,), _ = made(lambda: (Mixed(), (torch.randn(4, 6),), None))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        found: list[Any] = []
        for _ in range(2):
            with (
                torch.autocast("cpu", dtype, enabled=not inside),
                lowtide.remat(plan) if plan else contextlib.nullcontext(),
            ):
                value = loss(model(x))
            scaler.scale(value).backward()
            scaler.unscale_(optimizer)
            found += [bits(p.grad) for p in model.parameters()]
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        return [*found, scaler.get_scale(), *(bits(p) for p in model.parameters())]

    plain = once(None)
    for plan in (drop_everything(step), *(random_plan(step, k) for k in range(3))):
        assert once(plan) == plain


def test_settings_of_forward_count_when_ops_run_again() -> None:
    """Backends and types that forward sets for a part of itself."""

    class Sets(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)

        def forward(self, x: Tensor) -> Tensor:
            with torch.backends.mkldnn.flags(enabled=False):
                x = torch.tanh(self.a(x))
            before = torch.get_default_dtype()
            torch.set_default_dtype(torch.float64)
            steps = torch.arange(0.0, 8.0).view(8, 1, 1)
            torch.set_default_dtype(before)
            x = torch.sigmoid(self.b(x) * (steps * 0.1).float().exp())
            return x * steps.sin().float()

    assert_same(lambda: (Sets(), (torch.randn(2, 3, 12, 12, requires_grad=True),), None))


def test_a_composite_op_that_goes_another_way_on_fake_tensors() -> None:
    """`one_hot` looks at values on real tensors only."""
    assert_same(
        lambda: (Apply(lambda t: F.one_hot(t.argmax(1), 6) * t.exp()), (torch.randn(4, 6, requires_grad=True),), None),
        diverges=True,
    )


class Tagged(Tensor):
    """A subclass without a dispatch of its own, as of many libraries."""


class Wrapped(Tensor):
    """A wrapper that stands for another tensor, as distributed and quantized ones do."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Wrapped:
        made = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad)  # pyright: ignore
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch.utils._pytree import tree_map

        out = func(*tree_map(_unwrapped, args), **tree_map(_unwrapped, kwargs or {}))
        return tree_map(lambda t: Wrapped(t) if isinstance(t, Tensor) else t, out)


def _unwrapped(t: Any) -> Any:
    return t.inner if isinstance(t, Wrapped) else t


class FromWrapped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        return t.inner.clone() if isinstance(t, Wrapped) else t.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g


def test_subclasses_of_tensor() -> None:
    assert_same(
        lambda: (Apply(lambda t: t.as_subclass(Tagged).sin().exp().as_subclass(Tensor)), (torch.randn(4, 6),), None)
    )


def test_wrapper_subclasses_are_kept() -> None:
    class ToWrapped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: Tensor) -> Tensor:
            return Wrapped(t.clone())

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return g.inner if isinstance(g, Wrapped) else g

    def f(t: Tensor) -> Tensor:
        w = ToWrapped.apply(t)
        w = w.exp() * w.sin()
        return FromWrapped.apply(w) * t.cos()

    assert_same(lambda: (Apply(f), (torch.randn(4, 6),), None))


def test_nested_tensors() -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.a(x))
            nested = torch.nested.as_nested_tensor([h[:1], h[1:]], layout=torch.jagged)
            return torch.sigmoid(self.b(torch.tanh(nested))).values() * h

    assert_same(lambda: (Nested(), (torch.randn(4, 6),), None))
