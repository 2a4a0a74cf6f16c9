"""`torch.func` and saved-tensor hooks: transforms inside a planned step, and planned models inside transforms."""

from __future__ import annotations

import contextlib
import threading

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap

import lowtide
from tests.outcome import bits
from tests.plans import drop_everything
from tests.same import Made, assert_same, made, traced

pytestmark = pytest.mark.filterwarnings("ignore:this step leaves its plan", "ignore:`torch.jit.script`")


def mlp(d: int = 6) -> nn.Sequential:
    return nn.Sequential(nn.Linear(d, 8), nn.Tanh(), nn.Linear(8, d), nn.GELU(), nn.Linear(d, d))


class Inside(nn.Module):
    """A model that calls a transform of its own body in forward."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.before, self.f = what, mlp(), mlp()

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.before(x))
        if self.what == "grad":
            extra = vmap(grad(lambda v: self.f(v).square().sum()))(x)
        elif self.what == "vjp":
            out, pull = vjp(self.f, x)
            (extra,) = pull(torch.ones_like(out))
        elif self.what == "jvp":
            _, extra = jvp(self.f, (x,), (torch.ones_like(x),))
        elif self.what == "hessian":
            extra = vmap(hessian(lambda v: self.f(v).square().sum()))(x).sum(-1)
        elif self.what == "vmap":
            extra = vmap(self.f)(x)
        else:
            extra = vmap(jacrev(self.f))(x).diagonal(dim1=1, dim2=2)
        return (self.f(x) + extra).sin()


@pytest.mark.parametrize("what", ["grad", "vjp", "jvp", "hessian", "vmap", "jacrev"])
def test_a_transform_inside_a_planned_step(what: str) -> None:
    def make() -> Made:
        return Inside(what), (torch.randn(5, 6),), lambda y: y.square().mean()

    assert_same(make)


def test_dropout_under_vmap_inside_a_planned_step() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = mlp()

        def forward(self, x: Tensor) -> Tensor:
            x = torch.tanh(self.f(x))
            return vmap(lambda v: nn.functional.dropout(self.f(v), 0.3), randomness="different")(x).exp()

    assert_same(lambda: (Noisy(), (torch.randn(5, 6),), None))


def _per_sample(model: nn.Module, x: Tensor) -> list[object]:
    parameters = {k: v.detach() for k, v in model.named_parameters()}
    one = grad(lambda p, v: functional_call(model, p, (v.unsqueeze(0),)).square().sum())
    return [bits(g) for g in vmap(one, in_dims=(None, 0))(parameters, x).values()]


def test_per_sample_gradients_of_a_model_under_a_plan_are_taken_without_it() -> None:
    model, (x,), _ = made(lambda: (mlp(), (torch.randn(5, 6),), None))
    want = _per_sample(model, x)
    plan = drop_everything(lowtide.trace(model, (x,)))
    handle = lowtide.apply(model, plan)
    assert _per_sample(model, x) == want
    handle.remove()
    lowtide.checkpoint(model)
    assert _per_sample(model, x) == want


def test_a_planned_region_under_vmap() -> None:
    model, (x,), _ = made(lambda: (mlp(), (torch.randn(5, 6),), None))
    plan = drop_everything(lowtide.trace(model, (x,)))

    def gradients(region: contextlib.AbstractContextManager[object]) -> list[object]:
        model.zero_grad()
        with region:
            y = vmap(model)(x).square().sum()
        y.backward()
        return [bits(p.grad) for p in model.parameters()]

    plain = gradients(contextlib.nullcontext())
    assert gradients(lowtide.remat(plan)) == plain
    with lowtide.remat(plan):
        y = model(x).sum()
    model.zero_grad()
    y.backward()  # and the plan still serves outside of vmap


def test_hooks_are_as_before_after_a_transform_even_if_it_fails() -> None:
    packed: list[int] = []
    original = torch.autograd.graph.disable_saved_tensors_hooks
    plan = drop_everything(traced(lambda: (mlp(), (torch.randn(5, 6),), None)))

    def failing(v: Tensor) -> Tensor:
        raise ValueError("on purpose")

    x = torch.randn(3, requires_grad=True)
    with lowtide.remat(plan):
        with pytest.raises(ValueError, match="on purpose"):
            grad(failing)(torch.randn(3))
        top = torch._C._autograd._top_saved_tensors_default_hooks(True)
        assert top is not None
        assert top[0].__qualname__ == "Region.pack"
    assert torch.autograd.graph.disable_saved_tensors_hooks is original
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t, lambda t: t):
        (x * x).sum()
    assert packed
    grad(lambda v: v.square().sum())(torch.randn(3))  # and nothing of ours is left on the stack


def test_hooks_of_the_user_still_refuse_a_transform() -> None:
    model = mlp()
    plan = drop_everything(lowtide.trace(model, (torch.randn(5, 6),)))
    nothing = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    with lowtide.remat(plan), nothing, pytest.raises(RuntimeError, match="saved tensor hooks"):
        grad(lambda v: v.square().sum())(torch.randn(3))
    with nothing, lowtide.remat(plan), pytest.raises(RuntimeError, match="saved tensor hooks"):
        grad(lambda v: v.square().sum())(torch.randn(3))


def test_a_region_of_one_thread_is_nothing_to_a_transform_of_another() -> None:
    plan = drop_everything(traced(lambda: (mlp(), (torch.randn(5, 6),), None)))
    found: list[Tensor] = []
    with lowtide.remat(plan):
        t = threading.Thread(target=lambda: found.append(grad(lambda v: v.square().sum())(torch.ones(3))))
        t.start()
        t.join()
    assert found[0].tolist() == [2.0, 2.0, 2.0]
