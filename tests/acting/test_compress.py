"""Steps under plans with codes: the same to the bit, in memory as predicted, and whole where anything is in doubt."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import lowtide
from lowtide.acting.loss import scalar_loss
from lowtide.acting.meter import StorageMeter
from lowtide.errors import ReplayError
from lowtide.planning.compress import compressed
from lowtide.planning.cost import roofline
from lowtide.planning.judge import judge
from lowtide.planning.plan import Plan
from lowtide.planning.simulate import keep_all, simulate
from lowtide.planning.step import Step
from tests.functions import SavesAndViews
from tests.networks import NETWORKS
from tests.plans import drop_everything, random_plan
from tests.same import Made, assert_same, made, traced


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def block(activation: Callable[[], nn.Module], *rest: nn.Module) -> nn.Sequential:
    """Convolution, activation, what follows, and a convolution that saves its input whole."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        activation(),
        *rest,
        nn.Conv2d(8, 4, 1),
        nn.Tanh(),
        nn.Flatten(),
        nn.LazyLinear(5),
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], set[str]]] = {
    "relu": (lambda: block(nn.ReLU, nn.AvgPool2d(2)), {"nonpositive/4", "shape"}),
    "relu in place": (lambda: block(lambda: nn.ReLU(True), nn.AvgPool2d(2)), {"nonpositive/4", "shape"}),
    "leaky relu": (lambda: block(lambda: nn.LeakyReLU(0.2, True), nn.AvgPool2d(2)), {"positive/4", "shape"}),
    "pool": (lambda: block(nn.Tanh, nn.MaxPool2d(2)), {"shape", "index/1"}),
    "relu, pool": (lambda: block(nn.ReLU, nn.MaxPool2d(2)), {"nonpositive/4", "shape", "index/1"}),
    "adaptive pool": (lambda: block(nn.ReLU, nn.AdaptiveMaxPool2d(5)), {"nonpositive/4", "shape", "index/1"}),
    "dropout": (lambda: block(nn.Tanh, nn.Dropout(0.3)), {"two/4"}),
    "relu, dropout": (lambda: block(nn.ReLU, nn.Dropout(0.3)), {"nonpositive/4", "two/4"}),
}


def make_of(name: str, dtype: torch.dtype = torch.float32, form: Any = torch.contiguous_format) -> Callable[[], Made]:
    def make() -> Made:
        model = MODELS[name][0]()
        x = torch.randn(2, 3, 16, 16)
        with torch.no_grad():
            model(x)
        x[0, 0, 0, 0] = 0.0
        return model.to(dtype=dtype), (x.to(dtype=dtype, memory_format=form),), None

    return make


def coded(make: Callable[[], Made]) -> Step:
    return compressed(traced(make), least_bytes=1)


def codes_alone(step: Step) -> Plan:
    """What PyTorch keeps, as codes where they can be."""
    return judge(step, keep_all(step), {}, "codes", "for tests")


def codecs(step: Step) -> set[str]:
    return {c.codec for c in step.codes}


@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_same_step(name: str) -> None:
    step = coded(make_of(name))
    assert codecs(step) == MODELS[name][1]
    assert_same(make_of(name), step=step)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_it_is_the_same_step_in_other_types_and_formats(dtype: torch.dtype, form: torch.memory_format) -> None:
    make = make_of("relu, pool", dtype, form)
    step = coded(make)
    assert codecs(step) == {f"nonpositive/{dtype.itemsize}", "shape", "index/1"}
    assert_same(make, step=step)


def masked() -> Made:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            h = h.masked_fill(x.square() > 1, -1.0).sin()
            h = torch.native_dropout(self.b(h), 0.2, True)[0]
            return torch.where(h > 0.1, h.exp(), 0.3)

    return Masked(), (torch.randn(5, 8),), None


def test_masks() -> None:
    step = coded(masked)
    assert [c.codec for c in step.codes] == ["bits"] * 3
    assert_same(masked, step=step)


def metered(model: nn.Module, args: Any, plan: Plan) -> int:
    model.zero_grad()
    with StorageMeter() as meter:
        with lowtide.remat(plan):
            loss = model(*args).sum()
        loss.backward()
    return meter.peak_bytes


@pytest.mark.parametrize("name", MODELS)
def test_peaks_are_the_simulated_ones(name: str) -> None:
    model, args, _ = made(make_of(name))
    step = compressed(lowtide.trace(model, args, loss=lambda y: y.sum()), least_bytes=1)
    for plan in [codes_alone(step), drop_everything(step), *(random_plan(step, k) for k in range(4))]:
        assert metered(model, args, plan) == simulate(step, plan).peak_bytes, plan.solver


def test_codes_are_all_that_is_held() -> None:
    """Bytes that live between forward and backward."""
    model = nn.Sequential(nn.Linear(64, 4096), nn.ReLU(), nn.Dropout(0.5))
    x = torch.randn(16, 64)
    step = compressed(lowtide.trace(model, (x,), loss=lambda y: y.sum()))
    held: list[int] = []
    for plan in (None, codes_alone(step)):
        with StorageMeter() as meter, lowtide.remat(plan) if plan is not None else warnings.catch_warnings():
            loss = model(x).sum()
            held.append(meter.current_bytes)
        del loss
    n = 16 * 4096
    assert held == [2 * 4 * n + 4, n // 8 + n // 8 + 8 + 4]  # the result of the ReLU, noise, loss


# -- whole where in doubt ----------------------------------------------------------------------------------------------


class Sometimes(nn.Module):
    """A ReLU, a convolution that saves its input only if it is trained, a pool that saves it anyway."""

    def __init__(self, trained: bool) -> None:
        super().__init__()
        self.first, self.aside = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 1)
        self.aside.requires_grad_(trained)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).relu()
        with torch.set_grad_enabled(self.aside.weight.requires_grad):
            y = self.aside(h)
        return F.max_pool2d(h, 2).mean() + y.square().mean()


@pytest.mark.parametrize("trained", [False, True])
def test_a_save_that_the_plan_does_not_know_of_gets_all_of_it(trained: bool) -> None:
    def make_with(trained: bool) -> Callable[[], Made]:
        return lambda: (Sometimes(trained), (torch.randn(2, 3, 8, 8),), None)

    step = compressed(traced(make_with(not trained)), least_bytes=1)
    assert "shape" in codecs(step)
    assert ("nonpositive/4" in codecs(step)) == trained
    assert_same(make_with(trained), step=step)


class Switch(nn.Module):
    """The same ops whether or not a function of the user's own saves the result of the ReLU, too."""

    def __init__(self, on: bool) -> None:
        super().__init__()
        self.layer, self.on = nn.Conv2d(3, 8, 3, padding=1), on

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x).relu()
        return F.max_pool2d(SavesAndViews.apply(h) if self.on else h, 2)


@pytest.mark.parametrize("on", [False, True])
def test_a_function_in_between_gets_all_of_it(on: bool) -> None:
    step = compressed(traced(lambda: (Switch(not on), (torch.randn(2, 3, 8, 8),), None)), least_bytes=1)
    assert_same(lambda: (Switch(on), (torch.randn(2, 3, 8, 8),), None), step=step)


@pytest.mark.parametrize("size", [8, 30, 80])
def test_larger_images_have_wider_indices(size: int) -> None:
    def make_at(size: int) -> Callable[[], Made]:
        return lambda: (
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Tanh(), nn.AdaptiveMaxPool2d(1)),
            (torch.randn(2, 3, size, size),),
            None,
        )

    assert_same(make_at(size), step=coded(make_at(12)))


def test_a_change_before_backward_raises_as_ever() -> None:
    for change in (lambda h: h.add_(1.0), lambda h: h.mul_(2.0).relu_()):

        class Changed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Conv2d(3, 4, 3)

            def forward(self, x: Tensor) -> list[Tensor]:
                self.h = self.layer(x)
                return [F.max_pool2d(self.h, 2), F.relu(self.h)]

        for which in (0, 1):
            model, x = Changed(), torch.randn(2, 3, 8, 8)
            step = compressed(lowtide.trace(model, (x,), loss=lambda o, w=which: o[w].sum()), least_bytes=1)
            assert step.codes
            with lowtide.remat(codes_alone(step)):
                out = model(x)
            with torch.no_grad():
                change(model.h if which == 0 else out[1])
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                out[which].sum().backward()


def both_ways(make: Callable[[], Made], use: Callable[[Tensor, nn.Module], Any]) -> None:
    """What `use` makes of the output is the same under plans with codes."""
    results: list[Any] = []
    step = compressed(traced(make), least_bytes=1)
    plans: list[Plan | None] = [None, codes_alone(step), drop_everything(step), random_plan(step, 3)]
    for plan in plans:
        model, args, _ = made(make)
        torch.manual_seed(1)
        with lowtide.remat(plan) if plan is not None else warnings.catch_warnings():
            out = model(*args)
        results.append(use(out, model))
    for other in results[1:]:
        assert len(other) == len(results[0])
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_a_graph_that_is_retained() -> None:
    def use(out: Tensor, model: nn.Module) -> list[Tensor]:
        params = list(model.parameters())
        return [g for k in range(3) for g in torch.autograd.grad(out.square().sum(), params, retain_graph=k < 2)]

    both_ways(make_of("relu, pool"), use)


def test_gradients_of_gradients() -> None:
    def use(out: Tensor, model: nn.Module) -> list[Tensor]:
        params = list(model.parameters())
        first = torch.autograd.grad(out.square().sum(), params, create_graph=True)
        return [*first, *torch.autograd.grad(sum(g.square().sum() for g in first), params)]  # pyright: ignore

    for name in ("relu, pool", "leaky relu", "relu, dropout"):
        both_ways(make_of(name), use)


def test_many_gradients_at_once() -> None:
    def use(out: Tensor, model: nn.Module) -> list[Tensor]:
        g = torch.eye(out.numel()).view(out.numel(), *out.shape)
        return list(torch.autograd.grad(out, list(model.parameters()), g, is_grads_batched=True))

    both_ways(make_of("relu, pool"), use)


def test_inside_torch_func_nothing_is_coded() -> None:
    model, (x,), _ = made(make_of("relu, pool"))
    plan = codes_alone(compressed(lowtide.trace(model, (x,), loss=lambda y: y.sum()), least_bytes=1))
    params = dict(model.named_parameters())

    def loss(params: Any) -> Tensor:
        return torch.func.functional_call(model, params, (x,)).square().sum()

    want = torch.func.grad(loss)(params)
    with lowtide.remat(plan):
        got = torch.func.grad(loss)(params)
    assert all(torch.equal(got[k], want[k]) for k in want)


@pytest.mark.parametrize("plan_of", [codes_alone, drop_everything])
@pytest.mark.parametrize("name", ["relu, pool", "relu, dropout"])
def test_tensors_without_content(name: str, plan_of: Callable[[Step], Plan]) -> None:
    model, (x,), _ = made(make_of(name))
    step = compressed(lowtide.trace(model, (x,), loss=lambda y: y.sum()), least_bytes=1)
    plan = plan_of(step)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        with lowtide.remat(plan):
            loss = model(mode.from_tensor(x)).sum()
        loss.backward()
    model.zero_grad()
    assert metered(model.to("meta"), (x.to("meta"),), plan) == simulate(step, plan).peak_bytes


def test_nobody_is_shown_a_tensor_that_is_not_what_was_saved() -> None:
    model, (x,), _ = made(make_of("relu, pool"))
    plan = codes_alone(compressed(lowtide.trace(model, (x,), loss=lambda y: y.sum()), least_bytes=1))
    with lowtide.remat(plan):
        h = model[1](model[0](x))
        pooled = model[2](h)
    assert torch.equal(pooled.grad_fn._saved_result1, F.max_pool2d(h.detach(), 2, return_indices=True)[1])  # pyright: ignore
    for node, name in ((h.grad_fn, "_saved_result"), (pooled.grad_fn, "_saved_self")):
        with pytest.raises(ReplayError, match="compress=False"):
            getattr(node, name)


def test_a_cheap_function_of_what_is_kept_is_made_again_rather_than_kept() -> None:
    """No codec is needed for a copy in another type: plans make it again from what they keep."""

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(8))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
                x = x + x.double().sin().float()  # its backward wants the copy
            return x

    step = lowtide.trace(Wide(), (torch.randn(256, 64),))
    plan = lowtide.plan(step, budget="90%", budget_of="step")
    copies = {s.value for s in step.saves if step.nbytes(s.value) == 256 * 64 * 8}
    assert {step.ops[step.values[v].op].name for v in copies} == {"aten._to_copy.default"}
    assert len(copies) == 8
    assert len(copies - plan.keep) > 0
    assert {o for ops in plan.runs.values() for o in ops} <= {step.values[v].op for v in copies}
    assert plan.recompute_flops == 0
    assert plan.peak_bytes < plan.baseline_peak_bytes


def test_plans_use_codes_unless_told_otherwise() -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.MaxPool2d(2))
    step = lowtide.trace(model, (torch.randn(4, 3, 64, 64),))
    plain, plan = lowtide.plan(step, compress=False), lowtide.plan(step)
    assert not plain.step.codes
    assert plan.step.codes
    assert plan.peak_bytes < plain.peak_bytes
    assert plan.lower_bound_bytes < plain.lower_bound_bytes
    assert plan.baseline_peak_bytes == plain.baseline_peak_bytes == simulate(step).peak_bytes
    assert "compressed" in repr(plan)
    assert "compressed" not in repr(plain)
    assert Plan.from_json(plan.to_json()) == plan
    tight = lowtide.plan(step, budget=plan.peak_bytes, budget_of="step")
    assert tight.peak_bytes <= plan.peak_bytes


class Other(nn.Module):
    """The result of a ReLU is saved by the ReLU, or by what multiplies it: the ops are the same."""

    def __init__(self, by_relu: bool) -> None:
        super().__init__()
        self.layer, self.by_relu = nn.Linear(8, 8), by_relu
        self.scale = nn.Parameter(torch.linspace(0.5, 2.0, 8), requires_grad=not by_relu)

    def forward(self, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(self.by_relu):
            h = self.layer(x).relu()
        return h * self.scale


def test_whoever_saves_in_the_place_of_a_relu_gets_all_of_it() -> None:
    step = compressed(traced(lambda: (Other(True), (torch.randn(4, 8),), None)), least_bytes=1)
    assert codecs(step) == {"nonpositive/4"}
    assert_same(lambda: (Other(False), (torch.randn(4, 8),), None), step=step)


@pytest.mark.parametrize(("name", "seed"), [("resnet18", 0), ("alexnet", 3), ("unet", 0)])
def test_peaks_of_networks_are_the_simulated_ones(name: str, seed: int) -> None:
    net = NETWORKS[name]()
    step = compressed(lowtide.trace(net.model, net.args, net.kwargs, loss=net.loss), least_bytes=1)
    plan = random_plan(step, seed)
    with StorageMeter() as meter:
        with lowtide.remat(plan):
            loss = scalar_loss(net.model(*net.args, **net.kwargs), net.loss)
        loss.backward()
    assert meter.peak_bytes == simulate(step, plan).peak_bytes


def test_the_time_of_codes_is_reckoned() -> None:
    net = nn.Sequential(nn.Linear(64, 256), nn.Dropout(0.5), nn.Linear(256, 256), nn.Dropout(0.5))
    step = roofline(lowtide.trace(net, (torch.randn(64, 64),)), "a100")
    small = compressed(step)
    plan = judge(small, keep_all(small), {}, "codes", "for tests")
    assert {c.codec for c in small.codes} == {"two/4"}
    passing = [(t, op.traffic_bytes) for t, op in zip(step.seconds, step.ops, strict=True) if not op.flops]
    per_byte = sum(t for t, n in passing if n) / sum(n for _, n in passing)
    assert plan.added_s == pytest.approx(len(small.codes) * (20 + 10) * 64 * 256 * 4 * per_byte)
    assert simulate(small, plan).added_s == plan.added_s
    assert simulate(step).added_s == 0


def test_a_solver_that_is_named_gets_the_step_as_it_is() -> None:
    step = lowtide.trace(nn.Sequential(nn.Linear(64, 256), nn.Dropout(0.5)), (torch.randn(256, 64),))
    assert compressed(step).codes
    assert not lowtide.plan(step, solver="keep_all").step.codes
