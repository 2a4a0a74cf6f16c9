"""The tape itself: exact counts of what runs again, exact peaks, releases, and the promises of single records."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import lowtide
from lowtide.acting.loss import scalar_loss
from lowtide.acting.meter import StorageMeter
from lowtide.acting.record import Record, Ref, Slot, below_autograd
from lowtide.errors import ReplayError
from lowtide.planning.plan import Plan
from lowtide.planning.simulate import simulate
from tests.networks import NETWORKS
from tests.plans import drop_everything, keep_all, random_plan


class Count(TorchDispatchMode):
    """How often each op runs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[str(func)] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def chain(n: int = 6) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(m for _ in range(n) for m in (nn.Linear(8, 8), nn.Tanh())))


def traced(model: nn.Module, x: Tensor) -> Any:
    return lowtide.trace(model, (x,), loss=lambda y: y.sum())


def run(model: nn.Module, x: Tensor, plan: Plan | None) -> Count:
    with Count() as count:
        if plan is None:
            loss = model(x).sum()
        else:
            with lowtide.remat(plan):
                loss = model(x).sum()
        loss.backward()
    return count


PLAIN = ("aten.addmm.default", "aten.tanh.default")


@pytest.mark.parametrize("make", [keep_all, drop_everything, *(lambda s, k=k: random_plan(s, k) for k in range(6))])
def test_exactly_the_lists_of_the_plan_are_run(make: Any) -> None:
    model, x = chain(), torch.randn(4, 8)
    step = traced(model, x)
    plan = make(step)
    want = Counter(step.ops[o].name for ops in plan.runs.values() for o in ops)
    plain, planned = run(model, x, None), run(model, x, plan)
    again = {name: planned.seen[name] - plain.seen[name] for name in PLAIN}
    assert again == {name: want[name] for name in PLAIN}


def test_the_same_count_at_another_batch_and_twice_when_the_graph_is_retained() -> None:
    model, x = chain(), torch.randn(4, 8)
    step = traced(model, x)
    plan = drop_everything(step)
    n = sum(step.ops[o].name == "aten.addmm.default" for ops in plan.runs.values() for o in ops)
    other = torch.randn(9, 8)
    assert run(model, other, plan).seen["aten.addmm.default"] == 6 + n
    with lowtide.remat(plan):
        loss = model(x).sum()
    with Count() as count:
        loss.backward(retain_graph=True)
    assert count.seen["aten.addmm.default"] == n
    with Count() as count:
        loss.backward()
    assert count.seen["aten.addmm.default"] >= n


def test_nothing_runs_again_outside_of_backward() -> None:
    model, x = chain(), torch.randn(4, 8)
    plan = drop_everything(traced(model, x))
    with lowtide.remat(plan), Count() as count:
        loss = model(x).sum()
    assert count.seen["aten.addmm.default"] == 6
    with Count() as count:
        del loss
    assert not count.seen


def assert_peaks(name: str, makers: list[Any]) -> None:
    """By storages, with the garbage collector off, to a few bytes."""
    net = NETWORKS[name]()
    step = lowtide.trace(net.model, net.args, net.kwargs, loss=net.loss)
    for maker in makers:
        plan = maker(step)
        net.model.zero_grad()
        with StorageMeter() as meter:
            with lowtide.remat(plan):
                loss = scalar_loss(net.model(*net.args, **net.kwargs), net.loss)
            loss.backward()
        del loss
        assert abs(meter.peak_bytes - simulate(step, plan).peak_bytes) <= 1024, plan.solver


@pytest.mark.parametrize("name", ["resnet18", "unet"])
def test_peaks_on_real_networks_are_the_simulated_ones(name: str) -> None:
    assert_peaks(name, [drop_everything])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "densenet121", "efficientnet_b0", "unet", "gpt2"])
def test_peaks_on_real_networks_under_any_plan(name: str) -> None:
    assert_peaks(name, [keep_all, drop_everything, lambda s: random_plan(s, 0), lowtide.plan])


# -- one record --------------------------------------------------------------------------------------------------------


def slot_of(t: Tensor, held: bool = False) -> Slot:
    slot = Slot(0)
    slot.tensor, slot.held, slot.nbytes = t, held, t.untyped_storage().nbytes()
    return slot


def recorded(func: Any, *args: Any) -> Record:
    record = Record(0, func, "here")
    for a in args:
        record.args.append(Ref(a, a.tensor) if isinstance(a, Slot) else a)
        if isinstance(a, Slot):
            record.reads.append(a)
    return record


def test_a_run_takes_a_storage_over_only_if_nobody_else_has_it() -> None:
    for alone in (True, False):
        old, new = slot_of(torch.ones(4)), Slot(1)
        assert old.tensor is not None
        other = None if alone else old.tensor.view(2, 2)
        address = old.tensor.data_ptr()
        record = recorded(torch.ops.aten.mul_.Tensor, old, 3.0)
        record.inplace.append((old, new))
        with below_autograd():
            record.run([old])
        assert new.tensor is not None
        assert new.tensor.tolist() == [3.0] * 4
        assert (new.tensor.data_ptr() == address) == alone
        if other is not None:
            assert other.tolist() == [[1.0, 1.0], [1.0, 1.0]]
            assert old.tensor is not None


def test_a_run_that_fails_leaves_no_result() -> None:
    old, new = slot_of(torch.ones(4)), Slot(1)
    record = recorded(torch.ops.aten.mul_.Tensor, old, torch.ones(3, 5))  # shapes that do not fit
    record.inplace.append((old, new))
    with pytest.raises(RuntimeError), below_autograd():
        record.run()
    assert new.tensor is None
    assert old.tensor is not None
    assert old.tensor.tolist() == [1.0] * 4


def test_a_run_refuses_an_input_that_has_changed() -> None:
    t = torch.ones(4)
    source, out = slot_of(t, held=True), Slot(1)
    source.version = t._version
    record = recorded(torch.ops.aten.exp.default, source)
    record.outs.append((0, out))
    out.nbytes = 16
    t.add_(1)
    with pytest.raises(ReplayError, match=r"recomputing aten\.exp\.default in here: .* version 1, expected version 0"):
        record.run()
    assert out.tensor is None


def test_a_run_refuses_an_output_of_another_size() -> None:
    """A parameter that was resharded or resized meanwhile."""
    source, out = slot_of(torch.ones(4)), Slot(1)
    record = recorded(torch.ops.aten.exp.default, source)
    record.outs.append((0, out))
    out.nbytes = 20
    with pytest.raises(ReplayError, match="gave 16 bytes where forward gave 20"):
        record.run()


def test_a_storage_that_was_resized_to_nothing_raises() -> None:
    """What sharded training does to a parameter between forward and backward."""
    model, x = chain(2), torch.randn(4, 8)
    plan = drop_everything(traced(model, x))
    with lowtide.remat(plan):
        loss = model(x).sum()
    storage = model[0].weight.untyped_storage()
    storage.resize_(0)
    with pytest.raises(RuntimeError):
        loss.backward()


# -- the state after each answer ---------------------------------------------------------------------------------------


def test_a_node_that_asks_twice_gets_the_same_tensor() -> None:
    seen: list[Tensor] = []

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: Tensor) -> Tensor:
            ctx.save_for_backward(t)
            return t.sin()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            seen.extend(t.detach() for t in (*ctx.saved_tensors, *ctx.saved_tensors))
            return g * ctx.saved_tensors[0].cos()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return Twice.apply(self.f(x))

    model, x = Net(), torch.randn(4, 8)
    plan = drop_everything(traced(model, x))
    seen.clear()
    count = run(model, x, plan)
    assert seen[0].data_ptr() == seen[1].data_ptr()
    assert count.seen["aten.addmm.default"] == 2


def test_kept_values_are_not_copied_and_dropped_ones_are_let_go_at_once() -> None:
    model, x = chain(), torch.randn(4, 8)
    step = traced(model, x)
    with StorageMeter() as meter:
        with lowtide.remat(drop_everything(step)):
            loss = model(x).sum()
        assert meter.current_bytes == loss.untyped_storage().nbytes()
        del loss
        with lowtide.remat(keep_all(step)):
            loss = model(x).sum()
        assert meter.current_bytes == 6 * 4 * 8 * 4 + loss.untyped_storage().nbytes()
