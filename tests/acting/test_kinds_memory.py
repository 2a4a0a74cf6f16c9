"""Nothing is left behind: no memory, no mode, no hook, after a step, after half a step, after exceptions in forward, in
backward and in recomputation. All with the garbage collector off."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves

import lowtide
from lowtide.acting.meter import StorageMeter
from lowtide.acting.record import Record
from lowtide.planning.plan import Plan
from tests.outcome import bits
from tests.plans import drop_everything, random_plan
from tests.same import Made, made, traced


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(5))
        self.norm = nn.BatchNorm1d(16)
        self.fail: Callable[[], None] = lambda: None

    def forward(self, x: Tensor) -> Tensor:
        for k, layer in enumerate(self.layers):
            x = torch.relu_(layer(x)) + torch.tanh(x)
            x = nn.functional.dropout(x, 0.1)
            if k == 3:
                self.fail()
        return self.norm(x).sigmoid()


def make() -> Made:
    return Net(), (torch.randn(8, 16),), None


def plans() -> list[Plan]:
    step = traced(make)
    return [drop_everything(step), *(random_plan(step, k) for k in range(3))]


PLANS = plans()


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def leftovers() -> list[Any]:
    """Modes, hooks and flags that should not be there."""
    found: list[Any] = list(_get_current_dispatch_mode_stack())
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    found += [hooks] if hooks is not None else []
    found += [] if torch.is_grad_enabled() else ["grad mode is off"]
    found += (
        [] if torch.autograd.graph.disable_saved_tensors_hooks.__module__ == "torch.autograd.graph" else ["patched"]
    )
    return found


def storages(tree: Any) -> list[torch.UntypedStorage]:
    return [t.untyped_storage() for t in tree_leaves(tree) if isinstance(t, Tensor)]


class Watch(TorchDispatchMode):
    """Weak references to every storage that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: list[weakref.ref[Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {s._cdata for s in storages((args, kwargs))}
        out = func(*args, **(kwargs or {}))
        self.storages += [weakref.ref(s) for s in storages(out) if s._cdata not in given]
        return out

    def alive(self) -> int:
        return len({s.data_ptr() for r in self.storages if (s := r()) is not None and s.nbytes()})


@pytest.mark.parametrize("plan", PLANS, ids=lambda p: p.solver)
def test_a_step_frees_all_but_gradients(plan: Plan) -> None:
    model, (x,), _ = made(make)
    with Watch() as watch:
        with lowtide.remat(plan):
            loss = model(x).sum()
        loss.backward()
        del loss
        assert watch.alive() <= len(list(model.parameters()))
        model.zero_grad()
        assert watch.alive() == 0
    assert leftovers() == []


@pytest.mark.parametrize("plan", PLANS, ids=lambda p: p.solver)
def test_a_graph_that_is_thrown_away_frees_all(plan: Plan) -> None:
    model, (x,), _ = made(make)
    with Watch() as watch:
        with lowtide.remat(plan):
            loss = model(x).sum()
        assert watch.alive() > 0
        del loss
        assert watch.alive() == 0
        with lowtide.remat(plan):
            loss = model(x).sum()
        (g,) = torch.autograd.grad(loss, model.layers[4].weight)  # half of it
        del loss, g
        assert watch.alive() == 0
        with lowtide.remat(plan):
            loss = model(x).sum()
        loss.backward(retain_graph=True)
        loss.backward(retain_graph=True)
        model.zero_grad()
        del loss
        assert watch.alive() == 0


@pytest.mark.parametrize("plan", PLANS, ids=lambda p: p.solver)
def test_memory_goes_while_the_loss_stays(plan: Plan) -> None:
    """As without a plan: after backward the graph holds no activations, even if the user holds the loss."""
    model, (x,), _ = made(make)
    with Watch() as watch:
        with lowtide.remat(plan):
            loss = model(x).sum()
        loss.backward()
        model.zero_grad()
        assert watch.alive() == 1


@pytest.mark.parametrize("plan", PLANS, ids=lambda p: p.solver)
def test_steps_do_not_grow(plan: Plan) -> None:
    model, (x,), _ = made(make)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    peaks: list[int] = []
    with StorageMeter() as meter:
        for _ in range(4):
            meter.reset_peak()
            with lowtide.remat(plan):
                loss = model(x).sum()
            loss.backward()
            del loss
            optimizer.step()
            optimizer.zero_grad()
            peaks.append(meter.peak_bytes)
        assert meter.current_bytes == 0
    assert len(set(peaks)) == 1


class Failure(Exception):
    pass


def raises(error: type[BaseException], f: Callable[[], Any]) -> bool:
    """As `pytest.raises`, which holds on to the traceback."""
    try:
        f()
    except error:
        return True
    return False


def failing(error: type[BaseException]) -> Callable[[], None]:
    def fail() -> None:
        raise error("on purpose")

    return fail


@pytest.mark.parametrize("error", [Failure, torch.OutOfMemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("plan", PLANS[:2], ids=lambda p: p.solver)
def test_an_exception_in_forward(plan: Plan, error: type[BaseException]) -> None:
    model, (x,), _ = made(make)
    want = gradients(model, x, plan)
    model.fail = failing(error)
    with Watch() as watch:

        def forward() -> None:
            with lowtide.remat(plan):
                model(x)

        assert raises(error, forward)
        assert watch.alive() == 0
    assert leftovers() == []
    model.fail = lambda: None
    assert gradients(model, x, plan) == want


def gradients(model: nn.Module, x: Tensor, plan: Plan | None) -> list[Any]:
    torch.manual_seed(3)
    model.zero_grad()
    model.norm.reset_running_stats()  # pyright: ignore
    with lowtide.remat(plan) if plan else contextlib.nullcontext():
        loss = model(x).sum()
    loss.backward()
    return [bits(p.grad) for p in model.parameters()] + [bits(b) for b in model.buffers()]


@pytest.mark.parametrize("error", [Failure, torch.OutOfMemoryError, KeyboardInterrupt])
def test_an_exception_in_recomputation(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    """At every run in turn; after it the model works, nothing has leaked, and a retained graph still gives the right
    gradients."""
    model, (x,), _ = made(make)
    plan = PLANS[0]
    want = gradients(model, x, plan)
    original = Record.run
    runs = 0
    for fail_at in range(0, plan.recompute_ops, 8):
        for late in (False, True):
            runs = 0

            def run(self: Record, *args: Any, fail_at: int = fail_at, late: bool = late) -> None:
                nonlocal runs
                runs += 1
                if runs == fail_at + 1 and not late:
                    raise error("on purpose")
                original(self, *args)
                if runs == fail_at + 1:
                    raise error("on purpose")

            with Watch() as watch:
                torch.manual_seed(3)
                model.zero_grad()
                model.norm.reset_running_stats()
                with lowtide.remat(plan):
                    loss = model(x).sum()
                monkeypatch.setattr(Record, "run", run)
                assert raises(error, lambda loss=loss: loss.backward(retain_graph=True))
                monkeypatch.setattr(Record, "run", original)
                model.zero_grad()  # what had been accumulated before the exception
                loss.backward()
                found = [bits(p.grad) for p in model.parameters()] + [bits(b) for b in model.buffers()]
                assert found == want
                del loss
                model.zero_grad()
                assert watch.alive() == 0
            assert leftovers() == []


def test_an_op_that_fails_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """An out-of-memory error inside the kernel itself: nothing half-done is taken for done."""

    class Fragile(TorchDispatchMode):
        def __init__(self, at: int) -> None:
            super().__init__()
            self.at, self.seen = at, 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen += 1
            if self.seen == self.at:
                raise torch.OutOfMemoryError("on purpose")
            return func(*args, **(kwargs or {}))

    model, (x,), _ = made(make)
    plan = PLANS[0]
    want = gradients(model, x, plan)
    with Fragile(-1) as counter:
        gradients(model, x, plan)
    for at in range(1, counter.seen, 19):
        torch.manual_seed(3)
        model.zero_grad()
        model.norm.reset_running_stats()
        with lowtide.remat(plan):
            loss = model(x).sum()
        with contextlib.suppress(torch.OutOfMemoryError), Fragile(at):
            loss.backward(retain_graph=True)
        model.zero_grad()
        loss.backward()
        assert [bits(p.grad) for p in model.parameters()] + [bits(b) for b in model.buffers()] == want
    assert leftovers() == []


def test_an_exception_in_a_users_backward() -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: Tensor) -> Tensor:
            ctx.save_for_backward(t)
            return t.clone()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            _ = ctx.saved_tensors
            raise Failure("on purpose")

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Net(), Net()

        def forward(self, x: Tensor) -> Tensor:
            return self.b(Fails.apply(self.a(x)))

    class Plain(Two):
        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x).clone())

    model, (x,), _ = made(lambda: (Two(), (torch.randn(8, 16),), None))
    other, _, _ = made(lambda: (Plain(), (x,), None))
    plan = drop_everything(lowtide.trace(other, (x,)))
    with Watch() as watch:
        with lowtide.remat(plan):
            loss = model(x).sum()
        assert raises(Failure, loss.backward)
        del loss
        model.zero_grad()
        assert watch.alive() == 0
    assert leftovers() == []


def test_a_plan_goes_when_nobody_holds_it() -> None:
    plan = plans()[0]
    model, (x,), _ = made(make)
    gradients(model, x, plan)
    gone = weakref.ref(plan)
    del plan
    assert gone() is None
