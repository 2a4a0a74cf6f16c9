"""Backward in every order autograd allows: several losses, retained graphs, parts, double backward, inside the region,
nested, and backward inside forward."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

import lowtide
from lowtide.planning.plan import Plan
from tests.outcome import bits
from tests.plans import drop_everything, keep_all, random_plan
from tests.same import Made, assert_same, made


class Net(nn.Module):
    """A trunk with two heads; dropout, in-place ops, a norm and a residual."""

    def __init__(self, d: int = 8) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.norm, self.drop = nn.LayerNorm(d), nn.Dropout(0.2)
        self.left, self.right = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.relu_(self.a(x))
        h = h + self.drop(torch.tanh(self.norm(self.b(h))))
        h = self.c(h).sigmoid_()
        return torch.sin(self.left(h)) * h, torch.exp(-self.right(h).square())


def make() -> Made:
    return Net(), (torch.randn(4, 8, requires_grad=True),), None


@cache
def plan_for(maker: Callable[[Any], Plan] = drop_everything) -> Plan:
    model, args, _ = made(make)
    return maker(lowtide.trace(model, args, loss=lambda o: o[0].sum() + o[1].sum()))


PLANS = [drop_everything, *(lambda step, k=k: random_plan(step, k) for k in range(4))]

Play = Callable[[nn.Module, Tensor, Tensor, Tensor], list[Any]]


def play(plan: Plan | None, script: Play) -> list[Any]:
    """Run forward under the plan, then the script; bits of what the script returns and of all gradients."""
    model, (x,), _ = made(make)
    with lowtide.remat(plan) if plan else contextlib.nullcontext():
        left, right = model(x)
        one, two = left.sum(), right.sum()
    del left, right
    found = script(model, x, one, two)
    return [bits(t) for t in found] + [bits(p.grad) for p in model.parameters()] + [bits(x.grad)]


def assert_script(script: Play) -> None:
    plain = play(None, script)
    for maker in PLANS:
        assert play(plan_for(maker), script) == plain


def grads_of(loss: Tensor, of: list[Any], **options: Any) -> list[Any]:
    return list(torch.autograd.grad(loss, of, allow_unused=True, **options))


def test_two_losses_in_either_order() -> None:
    def first(model: nn.Module, x: Tensor, one: Tensor, two: Tensor) -> list[Any]:
        one.backward(retain_graph=True)
        two.backward()
        return []

    def second(model: nn.Module, x: Tensor, one: Tensor, two: Tensor) -> list[Any]:
        two.backward(retain_graph=True)
        one.backward()
        return []

    assert_script(first)
    assert_script(second)


def test_the_same_graph_again_and_again() -> None:
    def script(model: nn.Module, x: Tensor, one: Tensor, two: Tensor) -> list[Any]:
        loss = one + two
        for _ in range(3):
            loss.backward(retain_graph=True)
        loss.backward()
        return []

    assert_script(script)


def test_parts_first_in_every_order() -> None:
    names = ["right", "c", "a"]
    for order in itertools.permutations(names):

        def script(model: Any, x: Tensor, one: Tensor, two: Tensor, order: tuple[str, ...] = order) -> list[Any]:
            found: list[Any] = []
            for name in order:
                found += grads_of(one + two, [getattr(model, name).weight], retain_graph=True)
            (one + two).backward()
            return found

        assert_script(script)


def test_the_heads_without_the_trunk_and_the_trunk_later() -> None:
    def script(model: Any, x: Tensor, one: Tensor, two: Tensor) -> list[Any]:
        found = grads_of(two, [model.right.weight])  # frees the right head, and nothing below it
        one.backward()
        return found

    assert_script(script)


def test_a_loss_that_is_never_run() -> None:
    def script(model: Any, x: Tensor, one: Tensor, two: Tensor) -> list[Any]:
        two.backward()
        return []

    assert_script(script)


def test_a_second_backward_without_retaining_raises_as_ever() -> None:
    def script(model: Any, x: Tensor, one: Tensor, two: Tensor) -> list[Any]:
        (one + two).backward()
        with pytest.raises(RuntimeError, match="second time"):
            (one + two).backward()
        return []

    assert_script(script)


def test_only_some_leaves() -> None:
    def script(model: Any, x: Tensor, one: Tensor, two: Tensor) -> list[Any]:
        torch.autograd.backward([one, two], inputs=[model.c.weight, x], retain_graph=True)
        torch.autograd.backward([two], inputs=[model.a.bias])
        return []

    assert_script(script)


def test_gradients_weighted_and_batched() -> None:
    def script(model: Any, x: Tensor, one: Tensor, two: Tensor) -> list[Any]:
        both = torch.stack([one, two])
        found = grads_of(both, [model.a.weight, x], grad_outputs=torch.eye(2), is_grads_batched=True, retain_graph=True)
        both.backward(torch.tensor([0.5, -2.0]))
        return found

    assert_script(script)


def test_a_jacobian_in_one_batched_backward() -> None:
    def once(plan: Plan | None) -> list[Any]:
        model, (x,), _ = made(make)

        def f(x: Tensor) -> Tensor:
            with lowtide.remat(plan) if plan else contextlib.nullcontext():
                left, right = model(x)
            return torch.stack([left.sum(), right.sum()])

        return [bits(torch.autograd.functional.jacobian(f, x.detach(), vectorize=True))]

    plain = once(None)
    for maker in PLANS:
        assert once(plan_for(maker)) == plain


def test_double_backward() -> None:
    def script(model: Any, x: Tensor, one: Tensor, two: Tensor) -> list[Any]:
        (g,) = grads_of(one + two, [x], create_graph=True)
        (g.square().sum() + one).backward()
        return [g]

    assert_script(script)


def test_double_backward_that_does_not_retain() -> None:
    def script(model: Any, x: Tensor, one: Tensor, two: Tensor) -> list[Any]:
        g = grads_of(one + two, [x, model.b.weight], create_graph=True, retain_graph=False)
        sum(t.square().sum() for t in g).backward()
        return g

    plain = play(None, lambda m, x, one, two: [grads_of(one + two, [x, m.b.weight])[0]])
    assert plain
    # Plain autograd has freed what the second backward needs: whatever it says, a plan says, too.
    outcomes = []
    for plan in (None, *map(plan_for, PLANS)):
        try:
            outcomes.append(play(plan, script))
        except RuntimeError as e:
            outcomes.append("second time" in str(e))
    assert all(o == outcomes[0] for o in outcomes)


def test_triple_backward() -> None:
    def script(model: Any, x: Tensor, one: Tensor, two: Tensor) -> list[Any]:
        (g,) = grads_of(one + two, [x], create_graph=True)
        (h,) = grads_of(g.square().sum(), [x], create_graph=True)
        h.sum().backward()
        return [g, h]

    assert_script(script)


def test_saved_tensors_that_outlive_their_node() -> None:
    """What a backward hands on (here: saved tensors as gradients, kept by hooks) stays as it was while later runs
    work in place."""

    class Leak(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: Tensor) -> Tensor:
            ctx.save_for_backward(t)
            return t * 1

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            (t,) = ctx.saved_tensors
            KEPT.append(t)
            return t

    class Leaky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            for f in self.f:
                x = Leak.apply(f(x)).mul_(1.5).sigmoid_() + Leak.apply(torch.tanh(x))
            return x

    KEPT: list[Tensor] = []
    model, (x,), _ = made(lambda: (Leaky(), (torch.randn(4, 8),), None))
    want: list[Any] = []
    plans = [None, *(maker(lowtide.trace(model, (x,))) for maker in PLANS)]
    for plan in plans:
        KEPT.clear()
        model.zero_grad()
        with lowtide.remat(plan) if plan else contextlib.nullcontext():
            loss = model(x).sum()
        loss.backward()
        found = [bits(t) for t in KEPT] + [bits(p.grad) for p in model.parameters()]
        want = want or found
        assert found == want


def test_backward_inside_the_region() -> None:
    def once(plan: Plan | None) -> list[Any]:
        model, (x,), _ = made(make)
        optimizer = torch.optim.AdamW(model.parameters())
        found: list[Any] = []
        for _ in range(2):
            with lowtide.remat(plan) if plan else contextlib.nullcontext():
                left, right = model(x)
                loss = left.sum() + right.sum()
                loss.backward()
                found += [bits(p.grad) for p in model.parameters()]
                optimizer.step()
                optimizer.zero_grad()
            found += [bits(loss), *(bits(p) for p in model.parameters())]
        return found

    plain = once(None)
    for maker in PLANS:
        assert once(plan_for(maker)) == plain


class Larger(nn.Module):
    """The gradient of `maximum` has another layout where a dispatch mode is active; so a bias has other last bits."""

    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.f(x)
        return torch.maximum(y, y.contiguous(memory_format=torch.channels_last) * 1.0).square().mean()


def larger() -> Made:
    return Larger(), (torch.randn(1, 4, 5, 5),), None


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_backward_inside_the_region_is_that_of_a_step_that_nobody_watches(create_graph: bool) -> None:
    def once(region: contextlib.AbstractContextManager[Any]) -> list[Any]:
        model, (x,), _ = made(larger)
        layouts: list[Any] = []
        with region:
            loss = model(x)
            loss.register_hook(lambda _: layouts.append(_get_current_dispatch_mode_stack()))
            grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=create_graph)
        return [layouts[0] if not create_graph else [], *(bits(g) for g in grads)]

    plain = once(contextlib.nullcontext())
    step = lowtide.trace(*made(larger)[:2])
    for maker in (keep_all, *PLANS):
        assert once(lowtide.remat(maker(step))) == plain
    assert torch.autograd._engine_run_backward is torch.autograd.graph._engine_run_backward  # pyright: ignore


def test_with_other_modes_around_a_backward_inside_the_region_sees_them() -> None:
    class Watch(TorchDispatchMode):
        names: list[str] = []  # noqa: RUF012

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    plan = drop_everything(lowtide.trace(*made(larger)[:2]))
    model, (x,), _ = made(larger)
    with Watch(), lowtide.remat(plan):
        loss = model(x)
        Watch.names.clear()
        loss.backward()
    assert "aten.convolution_backward.default" in Watch.names


@pytest.mark.parametrize("maker", PLANS)
@pytest.mark.parametrize("before", ["", "read", "saved"])
def test_what_a_backward_inside_the_region_writes_is_seen(maker: Callable[[Any], Plan], before: str) -> None:
    """A backward that changes a parameter and an intermediate tensor, in the middle of forward: what comes after reads
    the new content, and what came before can be had again as it was or raises."""

    class Rude(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: Tensor) -> Tensor:
            return t.clone()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            for t in WRITTEN:
                t.add_(1.0)
            return g

    WRITTEN: list[Tensor] = []

    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f, self.scale = nn.Linear(8, 8), nn.Parameter(torch.ones(8), requires_grad=False)
            self.rude = True

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.f(x))
            noise = (x * 2).cos()
            early = (h * self.scale if before == "saved" else h + self.scale if before == "read" else h).sin()
            WRITTEN[:] = [self.scale.detach(), noise] if self.rude else []
            s = x.detach().requires_grad_()
            (g,) = torch.autograd.grad(Rude.apply(s.exp()).sum(), s)
            return torch.sigmoid(self.f(early * self.scale) * noise.exp()) * g

    def make() -> Made:
        return Writes(), (torch.randn(4, 8),), None

    def once(plan: Plan | None) -> list[Any]:
        model, (x,), _ = made(make)
        with lowtide.remat(plan) if plan else contextlib.nullcontext():
            loss = model(x).sum()
        try:
            loss.backward()
        except RuntimeError as e:
            return ["modified by an inplace operation" in str(e)]
        return [bits(p.grad) for p in model.parameters()]

    plain = once(None)
    assert (plain == [True]) == (before == "saved")
    model, args, _ = made(make)
    for model.rude in (False, True):  # whether the plan knows of it
        planned = once(maker(lowtide.trace(model, args)))
        # What would be recomputed from the old content, and cannot be, raises.
        assert planned == plain or (before == "read" and planned == [True])


def test_several_steps_inside_one_region() -> None:
    """The plan serves the first; the others are kept, and right."""

    def once(plan: Plan | None) -> list[Any]:
        model, (x,), _ = made(make)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with lowtide.remat(plan) if plan else contextlib.nullcontext():
            losses = []
            for _ in range(3):
                left, right = model(x)
                losses.append(left.sum() + right.sum())
                losses[-1].backward()
                optimizer.step()
        return [bits(t) for t in losses] + [bits(p) for p in model.parameters()]

    plain = once(None)
    for maker in PLANS:
        assert once(plan_for(maker)) == plain


def test_two_forwards_whose_backwards_come_in_any_order() -> None:
    def once(plan: Plan | None, order: tuple[int, ...], shared: bool) -> list[Any]:
        model, (x,), _ = made(make)
        losses: list[Tensor] = []

        def forward() -> None:
            left, right = model(x)
            losses.append(left.sum() + right.sum())

        if shared:
            with lowtide.remat(plan) if plan else contextlib.nullcontext():
                for _ in range(3):
                    forward()
        else:
            for _ in range(3):
                with lowtide.remat(plan) if plan else contextlib.nullcontext():
                    forward()
        for i in order:
            losses[i].backward()
        return [bits(p.grad) for p in model.parameters()] + [bits(x.grad)]

    for order in itertools.permutations(range(3)):
        for shared in (False, True):
            plain = once(None, order, shared)
            for maker in PLANS[:3]:
                assert once(plan_for(maker), order, shared) == plain


def test_a_region_inside_a_region() -> None:
    def once(outer: Plan | None, inner: Plan | None) -> list[Any]:
        model, (x,), _ = made(make)
        with lowtide.remat(outer) if outer else contextlib.nullcontext():
            h = torch.tanh(x * 2)
            with lowtide.remat(inner) if inner else contextlib.nullcontext():
                left, right = model(h)
            loss = (left * right).sin().sum()
        loss.backward()
        return [bits(p.grad) for p in model.parameters()] + [bits(x.grad)]

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def forward(self, x: Tensor) -> Tensor:
            left, right = self.net(torch.tanh(x * 2))
            return (left * right).sin().sum()

    plain = once(None, None)
    model, (x,), _ = made(lambda: (Whole(), (torch.randn(4, 8, requires_grad=True),), None))
    outer = drop_everything(lowtide.trace(model, (x,)))
    for inner in (None, *(plan_for(maker) for maker in PLANS[:3])):
        assert once(outer, inner) == plain


@pytest.mark.filterwarnings("ignore:this step leaves its plan")
def test_backward_of_another_step_inside_a_region() -> None:
    def once(plan: Plan | None) -> list[Any]:
        model, (x,), _ = made(make)
        other, (y,), _ = made(make, seed=1)
        with lowtide.remat(plan) if plan else contextlib.nullcontext():
            left, right = other(y)
            earlier = left.sum() + right.sum()
        with lowtide.remat(plan) if plan else contextlib.nullcontext():
            left, right = model(x)
            earlier.backward()
            loss = left.sum() + right.sum()
        loss.backward()
        return [bits(p.grad) for m in (model, other) for p in m.parameters()]

    plain = once(None)
    for maker in PLANS:
        assert once(plan_for(maker)) == plain


def test_gradient_accumulation_over_micro_batches() -> None:
    def once(plan: Plan | None) -> list[Any]:
        model, _, _ = made(make)
        for n in (4, 4, 2):
            x = torch.randn(n, 8)
            with lowtide.remat(plan) if plan else contextlib.nullcontext():
                left, right = model(x)
                loss = left.sum() + right.sum()
            loss.backward()
        return [bits(p.grad) for p in model.parameters()]

    plain = once(None)
    for maker in PLANS:
        assert once(plan_for(maker)) == plain


def test_autograd_grad_with_unused_inputs_in_a_loss() -> None:
    def loss(out: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        left, right, x = out
        g, _ = torch.autograd.grad(left.sum(), [x, right], create_graph=True, allow_unused=True)
        return (g.square().sum() + right.mean()).sqrt()

    class WithInput(Net):
        def forward(self, x: Tensor) -> Any:
            return *super().forward(x), x

    assert_same(lambda: (WithInput(), (torch.randn(4, 8, requires_grad=True),), loss))


def test_a_langevin_loop_in_forward() -> None:
    """Inner loops that differentiate without building a graph."""

    class Energy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.e = nn.Sequential(nn.Linear(8, 16), nn.Softplus(), nn.Linear(16, 1))

        def forward(self, x: Tensor) -> Tensor:
            z = torch.randn_like(x)
            for _ in range(3):
                z = z.detach().requires_grad_()
                (g,) = torch.autograd.grad(self.e(z).sum(), z)
                z = z - 0.1 * g + 0.01 * torch.randn_like(z)
            return self.e(x) - self.e(z.detach())

    assert_same(lambda: (Energy(), (torch.randn(4, 8),), None))


def test_a_gradient_in_forward_of_something_overwritten_afterwards() -> None:
    """It comes from an input that forward changes: it cannot be recomputed, and is kept until it is overwritten."""

    class Ascends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f, self.g = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            x.mul_(0.9)
            h = x.exp()
            s = h.detach().requires_grad_()
            (g,) = torch.autograd.grad((s.tanh() * s).sum(), s)
            return torch.tanh(self.f(torch.sigmoid(self.g(h.sigmoid_() + 0.1 * g))))

    step = assert_same(lambda: (Ascends(), (torch.randn(4, 8),), None))
    keep_all(step)
    for solver in ("auto", "keep_all"):
        assert lowtide.plan(step, solver=solver).peak_bytes > 0


def test_hooks_on_tensors_parameters_and_nodes() -> None:
    class Hooked(Net):
        def forward(self, x: Tensor) -> Any:
            left, right = super().forward(x)
            left.register_hook(lambda g: g * 2)
            right.grad_fn.register_prehook(lambda gs: tuple(g + 1 for g in gs))  # pyright: ignore
            left.retain_grad()
            return left, right

    def make() -> Made:
        model = Hooked()
        model.c.weight.register_hook(lambda g: g.clamp(-1, 1))
        model.left.register_full_backward_hook(lambda m, gi, go: (gi[0] * 0.5,))
        return model, (torch.randn(4, 8),), None

    assert_same(make)


def test_an_optimizer_that_steps_inside_backward() -> None:
    """Parameters change during backward, each when its gradient is there."""

    def once(plan: Plan | None) -> list[Any]:
        model, (x,), _ = made(make)
        optimizers = {p: torch.optim.Adam([p]) for p in model.parameters()}

        def step(p: Tensor) -> None:
            optimizers[p].step()
            p.grad = None

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(step)
        for _ in range(2):
            with lowtide.remat(plan) if plan else contextlib.nullcontext():
                left, right = model(x)
                loss = left.sum() + right.sum()
            loss.backward()
        return [bits(p) for p in model.parameters()]

    plain = once(None)
    assert once(plan_for(keep_all)) == plain
    for maker in PLANS:
        assert once(plan_for(maker)) == plain
