"""Other machinery of PyTorch in and around a planned step: data-dependent steps, checkpointing and hooks inside,
compiled and scripted modules, threads, copies of models, eval and no_grad, other modes."""

from __future__ import annotations

import copy
import io
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

import lowtide
from lowtide.acting.meter import StorageMeter
from lowtide.errors import InputError, TraceError
from lowtide.planning.plan import Plan
from lowtide.planning.simulate import simulate
from tests.outcome import bits
from tests.plans import drop_everything, keep_all, random_plan
from tests.same import Made, assert_same, made, traced


def block() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Dropout(0.2), nn.Linear(12, 6), nn.Tanh())


class Between(nn.Module):
    """A function of blocks between two layers."""

    def __init__(self, f: Callable[[nn.Module, Tensor], Tensor], n: int = 2) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.blocks, self.f = nn.ModuleList(block() for _ in range(n)), f

    def forward(self, x: Tensor) -> Tensor:
        x = torch.sigmoid(self.a(x))
        for b in self.blocks:
            x = x + self.f(b, x)
        return torch.sin(self.b(x)).exp()


# -- data-dependent steps -------------------------------------------------------------------------------------------


def positive_only(b: nn.Module, x: Tensor) -> Tensor:
    rows = (x.sum(1) > 3).nonzero().squeeze(1)
    return torch.zeros_like(x).index_copy(0, rows, b(x[rows]))


def routed(b: nn.Module, x: Tensor) -> Tensor:
    """A mixture of experts by hand: counts on the host."""
    expert = x.argmax(1) % 2
    out = torch.zeros_like(x)
    for e in range(2):
        chosen = torch.where(expert == e)[0]
        if chosen.numel():
            out[chosen] = b(x[chosen]) * (e + 1)
    return out


def with_item(b: nn.Module, x: Tensor) -> Tensor:
    y = b(x)
    return y * (2.0 if y.sum().item() > 0 else 0.5) + float(y.detach().max())


def while_loop(b: nn.Module, x: Tensor) -> Tensor:
    n = 0
    while x.detach().norm() > 0.5 and n < 3:
        x, n = b(x) * 0.5, n + 1
    return x


def split_sizes(b: nn.Module, x: Tensor) -> Tensor:
    n = int((x[:, 0] > 0.5).sum())
    return torch.cat([b(t) for t in x.split([n, len(x) - n])])


DEPENDENT: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "nonzero": positive_only,
    "masked select": lambda b, x: b(x) * x.masked_select(x > 0.5).sum().exp(),
    "item": with_item,
    "branches": lambda b, x: b(x) if (x > 0.4).any() else b(-x),
    "experts": routed,
    "while": while_loop,
    "unique": lambda b, x: b(x) + x.detach().round().unique().numel(),
    "to list": lambda b, x: b(x[[i for i, v in enumerate(x[:, 0].tolist()) if v > -1]]),
    "repeat": lambda b, x: b(x.repeat_interleave(torch.tensor([1, 2, 1, 1]), 0))[:4],
    "split sizes": split_sizes,
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_steps_that_look_at_values(name: str) -> None:
    step = assert_same(lambda: (Between(DEPENDENT[name]), (torch.randn(4, 6),), None), diverges=True)
    assert "looks at values" in step.meta["real"]


def test_what_looks_at_values_cannot_be_traced_on_meta() -> None:
    with torch.device("meta"):
        model, x = Between(with_item), torch.randn(4, 6)
    with pytest.raises(TraceError, match=r"looks at values .* on 'meta'"):
        lowtide.trace(model, (x,))


def test_tracing_for_real_leaves_everything_as_it_was() -> None:
    class Writes(Between):
        def __init__(self) -> None:
            super().__init__(with_item)
            self.norm = nn.BatchNorm1d(6)

        def forward(self, x: Tensor) -> Tensor:
            x.add_(1)
            with torch.no_grad():
                self.a.weight.mul_(0.5)
            return self.norm(super().forward(x))

    model, (x,), _ = made(lambda: (Writes(), (torch.randn(4, 6),), None))
    model.a.weight.grad = torch.ones(6, 6)  # pyright: ignore
    before = [bits(t) for t in (*model.parameters(), *model.buffers(), x, model.a.weight.grad)]  # pyright: ignore
    rng = bits(torch.get_rng_state())
    step = lowtide.trace(model, (x,), optimizer="adamw")
    assert "real" in step.meta
    assert [bits(t) for t in (*model.parameters(), *model.buffers(), x, model.a.weight.grad)] == before  # pyright: ignore
    assert bits(torch.get_rng_state()) == rng
    assert [p.grad is None for p in model.parameters()].count(False) == 1


# -- checkpointing and hooks inside -----------------------------------------------------------------------------------


def selective(b: nn.Module, x: Tensor) -> Tensor:
    ops = [torch.ops.aten.addmm.default]
    return checkpoint(b, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(ops))  # pyright: ignore


def without_generators(b: nn.Module, x: Tensor) -> Tensor:
    return checkpoint(b[0], x, use_reentrant=False, preserve_rng_state=False)[:, :6]  # pyright: ignore


def twofold(b: nn.Module, x: Tensor) -> Tensor:
    return checkpoint(lambda t: checkpoint(b, t, use_reentrant=False).sin(), x, use_reentrant=False)  # pyright: ignore


def own_hooks(b: nn.Module, x: Tensor) -> Tensor:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (t.clone(),), lambda p: p[0] * 1):
        return b(x)


def in_numpy(b: nn.Module, x: Tensor) -> Tensor:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().double(), lambda p: p.float()):
        return b(x)


def on_cpu(b: nn.Module, x: Tensor) -> Tensor:
    with torch.autograd.graph.save_on_cpu():
        return b(x)


INSIDE: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "checkpoint": lambda b, x: checkpoint(b, x, use_reentrant=False),  # pyright: ignore
    "reentrant checkpoint": lambda b, x: checkpoint(b, x, use_reentrant=True),  # pyright: ignore
    "checkpoint without generators": without_generators,
    "checkpoint in sequence": lambda b, x: checkpoint_sequential(b, 2, x, use_reentrant=False),  # pyright: ignore
    "selective checkpoint": selective,
    "checkpoint in a checkpoint": twofold,
    "hooks": own_hooks,
    "hooks that change the type": in_numpy,
    "saved on the CPU": on_cpu,
}  # fmt: skip


@pytest.mark.parametrize("name", INSIDE)
def test_a_model_that_saves_memory_by_itself(name: str) -> None:
    assert_same(lambda: (Between(INSIDE[name]), (torch.randn(4, 6, requires_grad=True),), None))


def test_a_checkpoint_around_a_planned_model() -> None:
    model, (x,), _ = made(lambda: (Between(lambda b, t: b(t)), (torch.randn(4, 6, requires_grad=True),), None))
    step = lowtide.trace(model, (x,))

    def once(plan: Plan | None) -> list[Any]:
        model, (x,), _ = made(lambda: (Between(lambda b, t: b(t)), (torch.randn(4, 6, requires_grad=True),), None))
        if plan is not None:
            lowtide.apply(model, plan)
        checkpoint(model, x, use_reentrant=False).sum().backward()  # pyright: ignore
        return [bits(x.grad), *(bits(p.grad) for p in model.parameters())]

    plain = once(None)
    for plan in (drop_everything(step), random_plan(step, 1)):
        assert once(plan) == plain


def test_hooks_around_a_planned_region() -> None:
    """Of two pairs of hooks PyTorch uses the inner one."""
    plan = drop_everything(traced(lambda: (Between(lambda b, x: b(x)), (torch.randn(4, 6),), None)))
    packed: list[int] = []
    model, (x,), _ = made(lambda: (Between(lambda b, x: b(x)), (torch.randn(4, 6),), None))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t, lambda t: t):
        with lowtide.remat(plan):
            y = model(x)
        assert not packed
        y = (y * y).sum()
        assert packed
    y.backward()


# -- compiled and scripted modules -----------------------------------------------------------------------------------


def test_a_compiled_part() -> None:
    """Under any dispatch mode `torch.compile` steps back; what it returns is right."""
    torch._dynamo.reset()

    def make() -> Made:
        model = Between(lambda b, x: b(x))
        for b in model.blocks:
            b.compile(backend="aot_eager")
        return model, (torch.randn(4, 6),), None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step = traced(make)
        model, (x,), _ = made(make)
        losses: list[Any] = []
        for plan in (None, drop_everything(step), random_plan(step, 0)):
            model.zero_grad()
            torch.manual_seed(1)
            if plan is None:
                loss = model(x).sum()
            else:
                with lowtide.remat(plan):
                    loss = model(x).sum()
            loss.backward()
            losses.append([p.grad.clone() for p in model.parameters()])  # pyright: ignore
    for other in losses[1:]:
        torch.testing.assert_close(other, losses[0])
    assert all(torch.equal(a, b) for a, b in zip(losses[1], losses[2], strict=True))


def test_a_scripted_part() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)))

    def make() -> Made:
        model = Between(lambda b, x: b(x))
        model.blocks[0] = copy.deepcopy(scripted)
        return model, (torch.randn(4, 6),), None

    assert_same(make)


def test_a_scripted_model_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Sequential(nn.Linear(6, 6), nn.Tanh()))
    with pytest.raises(InputError, match="TorchScript"):
        lowtide.checkpoint(scripted)


# -- threads -----------------------------------------------------------------------------------------------------------


def test_threads_each_with_a_region() -> None:
    """As `nn.DataParallel` runs replicas: at once, on one plan and shared parameters. Dropout off: threads share the
    generator, and their turns are a matter of luck."""

    def make() -> Made:
        model = nn.Sequential(
            *(nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32), nn.Sigmoid()) for _ in range(6))
        )
        return model, (torch.randn(64, 32),), None

    plan = drop_everything(traced(make))
    model, _, _ = made(make)
    inputs = [torch.randn(64, 32) for _ in range(4)]
    want = [[bits(g) for g in torch.autograd.grad(model(x).sum(), list(model.parameters()))] for x in inputs]
    found: list[Any] = [None] * 4
    errors: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for _ in range(8):
                with lowtide.remat(plan):
                    loss = model(inputs[k]).sum()
                found[k] = [bits(g) for g in torch.autograd.grad(loss, list(model.parameters()))]
                assert found[k] == want[k]
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert found == want


def test_threads_that_draw_from_one_generator() -> None:
    """Whose turn it is is luck, but what a thread recomputes is what it drew: the gradient of dropout(x).sum() is the
    mask itself."""

    class Drops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(32, 32))

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(10):
                x = F.dropout(x * self.w, 0.1) * 1.5
                x = x.square().sqrt()
            return x

    model, (x,), _ = made(lambda: (Drops(), (torch.rand(32, 32) + 0.5,), None))
    plan = drop_everything(lowtide.trace(model, (x,)))
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(10):
                mine = x.clone().requires_grad_()
                with lowtide.remat(plan):
                    y = model(mine)
                (g,) = torch.autograd.grad(y.sum(), mine)
                # Of what survived all masks the output is a multiple of the input, and the gradient the factor.
                torch.testing.assert_close(torch.where(y > 0, g * mine, 0), y.detach())
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work) for _ in range(3)]
    patience = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(patience)
    assert not errors, errors[0]


def test_backward_on_another_thread() -> None:
    plan = drop_everything(traced(lambda: (Between(lambda b, x: b(x)), (torch.randn(4, 6),), None)))

    def once(plan: Plan | None) -> list[Any]:
        model, (x,), _ = made(lambda: (Between(lambda b, x: b(x)), (torch.randn(4, 6),), None))
        if plan is None:
            loss = model(x).sum()
        else:
            with lowtide.remat(plan):
                loss = model(x).sum()
        t = threading.Thread(target=loss.backward)
        t.start()
        t.join()
        return [bits(p.grad) for p in model.parameters()]

    assert once(plan) == once(None)


# -- models and modes -------------------------------------------------------------------------------------------------


def gradients(model: nn.Module, x: Tensor) -> list[Any]:
    torch.manual_seed(1)
    model.zero_grad()
    model(x).sum().backward()
    return [bits(p.grad) for p in model.parameters()]


def between() -> Made:
    return Between(lambda b, x: b(x)), (torch.randn(4, 6),), None


def under_apply(model: nn.Module, x: Tensor) -> Any:
    return lowtide.apply(model, drop_everything(lowtide.trace(model, (x,))))


def under_checkpoint(model: nn.Module, x: Tensor) -> Any:
    lowtide.checkpoint(model)
    return lowtide.Handle(model) if hasattr(lowtide, "Handle") else None


@pytest.mark.parametrize("enter", [under_apply, under_checkpoint])
def test_a_planned_model_is_still_the_model(enter: Callable[[nn.Module, Tensor], Any]) -> None:
    model, (x,), _ = made(between)
    want = gradients(model, x)
    kind, forward = type(model), model.forward
    handle = enter(model, x)
    assert isinstance(model, kind)
    assert gradients(model, x) == want
    assert list(model.state_dict()) == list(kind(lambda b, x: b(x)).state_dict())

    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.a.weight.add_(1)  # pyright: ignore
    assert gradients(model, x) == want
    assert gradients(twin, x) != want

    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    twin.load_state_dict(torch.load(buffer))
    assert gradients(twin, x) == want
    if handle is not None:
        handle.remove()
        assert type(model) is kind
        assert model.forward == forward
        assert gradients(model, x) == want


@pytest.mark.parametrize("enter", [under_apply, under_checkpoint])
def test_eval_and_no_grad_run_as_they_are(enter: Callable[[nn.Module, Tensor], Any]) -> None:
    model, (x,), _ = made(between)
    model.eval()
    want = bits(model(x))
    eval_gradients = gradients(model, x)
    model.train()
    enter(model, x)
    model.eval()
    assert bits(model(x)) == want
    assert gradients(model, x) == eval_gradients
    model.train()
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            torch.manual_seed(2)
            found = model(x)
        assert not found.requires_grad
        assert found.grad_fn is None


def test_a_region_inside_no_grad_and_no_grad_inside_a_region() -> None:
    class Teaches(Between):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                target = super().forward(x)
            with torch.inference_mode():
                scale = (x * 2).sum()
            return (super().forward(x) - target).square() * float(scale)

    plan = drop_everything(traced(between))
    model, (x,), _ = made(between)
    with torch.no_grad(), lowtide.remat(plan), torch.enable_grad():
        model(x).sum().backward()
    assert_same(lambda: (Teaches(lambda b, x: b(x)), (torch.randn(4, 6),), None))


def test_other_modes_around_and_inside() -> None:
    plan = drop_everything(traced(between))

    def once(plan: Plan | None, mode: Any) -> list[Any]:
        model, (x,), _ = made(between)
        with mode():
            if plan is None:
                loss = model(x).sum()
            else:
                with lowtide.remat(plan):
                    loss = model(x).sum()
            loss.backward()
        return [bits(p.grad) for p in model.parameters()]

    modes = [
        lambda: FlopCounterMode(display=False),
        lambda: torch.device("cpu"),
        lambda: torch.autograd.set_detect_anomaly(True),
        lambda: torch.autograd.set_multithreading_enabled(False),
        lambda: torch.profiler.profile(),
        lambda: torch.overrides.BaseTorchFunctionMode(),
    ]
    for mode in modes:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert once(plan, mode) == once(None, mode)


def test_several_devices_of_one_step_share_a_meta_branch() -> None:
    """Shapes computed on 'meta' in the middle of a step."""

    def f(b: nn.Module, x: Tensor) -> Tensor:
        shape = (torch.empty(x.shape, device="meta") @ torch.empty(6, 3, device="meta")).shape
        return b(x)[:, : shape[1]].repeat(1, 2)

    assert_same(lambda: (Between(f), (torch.randn(4, 6),), None))


def noisy() -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 16), nn.ReLU(True), nn.RReLU())


@pytest.mark.parametrize("where", ["meta", "fake"])
@pytest.mark.parametrize("maker", [keep_all, drop_everything, lambda s: random_plan(s, 2)])
def test_a_step_without_contents_takes_the_memory_of_a_real_one(where: str, maker: Callable[[Any], Plan]) -> None:
    """On `meta`, and in a fake mode of the user's own; random ops included, which draw nothing there."""
    step = lowtide.trace(noisy(), (torch.randn(32, 16),))
    plan = maker(step)
    with FakeTensorMode() if where == "fake" else torch.device("meta"):
        model, x = noisy(), torch.randn(32, 16)
        with StorageMeter() as meter:
            with lowtide.remat(plan):
                loss = model(x).sum()
            loss.backward()
    assert meter.peak_bytes == simulate(step, plan).peak_bytes
