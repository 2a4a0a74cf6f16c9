from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lowtide.acting.apply
from lowtide.acting.evidence import Bits
from lowtide.acting.verify import Verdict, verify
from lowtide.errors import InputError
from lowtide.planning.plan import Plan
from lowtide.planning.step import Step


def no_plan() -> Plan:
    """A plan that says nothing; `remat` is replaced below, so that nobody reads it."""
    step = Step(ops=(), values=(), storages=(), saves=(), moments=(), positions=(), n_forward=0)
    return Plan(step, frozenset(), {}, "none", "", 11, 22, 33, 1, "", 5, 2)


class Net(nn.Module):
    """Everything that `verify` must look at. `fault` is called in forward when the planned step runs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
        self.second = nn.Linear(8, 8)
        self.unused = nn.Linear(8, 8)
        self.calls = 0
        self.seen: list[Tensor] = []
        self.scale = torch.ones(8)
        self.own = torch.Generator()
        self.fault: Callable[[Net, Tensor], Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        h = self.first(x)
        self.seen.append(h.detach().mean())
        h = h * (1 + random.random()) * (1 + np.random.rand()) * torch.rand(8, generator=self.own)
        self.scale.mul_(1.5)
        if self.fault is not None and PLANNED:
            h = self.fault(self, h)
        return self.second(h * self.scale)


PLANNED: list[bool] = []


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Net:
    @contextmanager
    def remat(_: Plan) -> Iterator[None]:
        PLANNED.append(True)
        try:
            yield
        finally:
            PLANNED.clear()

    monkeypatch.setattr(lowtide.acting.apply, "remat", remat)
    torch.manual_seed(7)
    return Net()


def inputs() -> Tensor:
    return torch.randn(4, 8, requires_grad=True)


def judge(net: Net, **options: Any) -> Verdict:
    return verify(net, (inputs(),), plan=no_plan(), **options)


def test_the_same_step_twice_is_ok(net: Net) -> None:
    found = judge(net)
    assert found.ok
    assert found.differences == ()
    assert found.first_module is None
    assert found.tolerance == ""
    assert found.peak_bytes == found.baseline_peak_bytes > 0
    assert (found.predicted_peak_bytes, found.predicted_baseline_peak_bytes) == (11, 22)
    assert (found.recompute_flops, found.recompute_ops) == (5, 2)
    assert found.seconds > 0
    assert found.compared > 20


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return grad * 2


def draw_torch(net: Net, h: Tensor) -> Tensor:
    torch.rand(1)
    return h


def draw_own(net: Net, h: Tensor) -> Tensor:
    torch.rand(1, generator=net.own)
    return h


def draw_python(net: Net, h: Tensor) -> Tensor:
    random.random()
    return h


def draw_numpy(net: Net, h: Tensor) -> Tensor:
    np.random.rand()
    return h


def write_buffer(net: Net, h: Tensor) -> Tensor:
    net.get_buffer("first.1.num_batches_tracked").add_(1)
    return h


def write_attribute(net: Net, h: Tensor) -> Tensor:
    net.scale[3] += 1e-3
    return h


def count_twice(net: Net, h: Tensor) -> Tensor:
    net.calls += 1
    return h


def list_twice(net: Net, h: Tensor) -> Tensor:
    net.seen.append(torch.zeros(()))
    return h


def use_unused(net: Net, h: Tensor) -> Tensor:
    return h + net.unused(h) * 0


FAULTS: dict[str, tuple[Callable[[Net, Tensor], Tensor], str, str, str | None]] = {
    "wrong gradient": (lambda _, h: Twice.apply(h), "gradient", "first.1.bias", "first.1"),  # pyright: ignore
    "wrong value": (lambda _, h: h + 1e-3, "loss", "loss", "second"),
    "torch generator": (draw_torch, "random generator", "torch", None),
    "python generator": (draw_python, "random generator", "Python's random", None),
    "numpy generator": (draw_numpy, "random generator", "NumPy", None),
    "buffer": (write_buffer, "buffer", "first.1.num_batches_tracked", "first.1"),
    "attribute": (write_attribute, "attribute", "scale", ""),
    "counter": (count_twice, "attribute", "calls", ""),
    "list": (list_twice, "attribute", "seen[1]", ""),
    "gradient that should be None": (use_unused, "gradient", "unused.bias", "unused"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_finds_each_kind_of_fault(net: Net, name: str) -> None:
    fault, kind, where, module = FAULTS[name]
    net.fault = fault
    found = judge(net)
    assert not found.ok
    hits = [d for d in found.differences if (d.kind, d.name) == (kind, where)]
    assert hits, found.differences
    assert found.first_module == module, [d.sentence for d in found.differences]
    assert hits[0].sentence.startswith(f"{kind} {where}: ")
    json.dumps(found.to_json())


def test_says_by_how_much(net: Net) -> None:
    net.fault = write_attribute
    attribute = next(d for d in judge(net).differences if d.kind == "attribute")
    assert attribute.max_abs == pytest.approx(1e-3, rel=1e-3)
    assert "1.000e-03" in attribute.sentence
    assert "12.5%" in attribute.sentence


def test_input_gradients_count(net: Net) -> None:
    net.fault = FAULTS["wrong gradient"][0]
    assert ("input gradient", "args[0]") in {(d.kind, d.name) for d in judge(net).differences}


def test_first_difference_is_in_backwards_order(net: Net) -> None:
    """The gradient that is wrong first in time is that of the module next to the fault, not that of the input."""
    net.fault = FAULTS["wrong gradient"][0]
    names = [d.name for d in judge(net).differences if d.kind == "gradient"]
    assert names == ["first.1.bias", "first.1.weight", "first.0.bias", "first.0.weight"]


def test_a_fault_in_a_later_step_is_found(net: Net) -> None:
    net.fault = lambda net, h: h + 1 if net.calls == 3 else h
    assert judge(net, steps=2).ok
    found = judge(net, steps=3, optimizer="adamw")
    assert not found.ok
    assert found.differences[0].step == 2
    assert "(step 2)" in found.differences[0].sentence


def test_parameters_after_an_optimizer_differ_if_gradients_do(net: Net) -> None:
    net.fault = FAULTS["wrong gradient"][0]
    for optimizer in (
        "sgd",
        torch.optim.Adagrad,
        lambda p: torch.optim.SGD(p, 0.1),
        torch.optim.SGD(net.parameters(), 1.0),
    ):  # pyright: ignore
        found = judge(net, optimizer=optimizer)
        assert any(d.kind == "parameter" for d in found.differences)
    assert not any(d.kind == "parameter" for d in judge(net).differences)


def everything(net: Net, x: Tensor, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    out: dict[str, Any] = {f"{k} {id(v)}": Bits.of(v).raw.tobytes() for k, v in net.state_dict(keep_vars=True).items()}
    out["grads"] = [
        (id(p.grad), None if p.grad is None else Bits.of(p.grad).raw.tobytes()) for p in [*net.parameters(), x]
    ]
    out["x"] = Bits.of(x).raw.tobytes()
    out["attributes"] = (net.calls, list(map(id, net.seen)), [t.tolist() for t in net.seen], id(net.seen))
    out["scale"] = (id(net.scale), net.scale.tolist())
    out["own"] = net.own.get_state().tolist()
    out["random"] = (random.getstate(), torch.get_rng_state().tolist(), repr(np.random.get_state()))
    out["optimizer"] = repr(optimizer.state_dict())
    out["training"] = [m.training for m in net.modules()]
    out["hooks"] = [len(m._forward_hooks) for m in net.modules()]
    return out


@pytest.mark.parametrize("fails", [False, True])
def test_leaves_everything_as_it_was(net: Net, fails: bool) -> None:
    x = inputs()
    net.unused.requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad])
    net(x).sum().backward()
    optimizer.step()
    net.seen.append(torch.ones(3))
    before = everything(net, x, optimizer)

    def breaks(*_: Any) -> Tensor:
        raise KeyError("mine")

    if fails:
        net.fault = breaks
        with pytest.raises(KeyError, match="mine"):
            verify(net, (x,), plan=no_plan(), steps=2, optimizer=optimizer, seed=3)
    else:
        assert verify(net, (x,), plan=no_plan(), steps=2, optimizer=optimizer, seed=3).ok
    after = everything(net, x, optimizer)
    assert after.keys() == before.keys()
    for key, value in before.items():
        assert after[key] == value, key


def test_inputs_written_by_the_model_are_restored_between_runs(net: Net) -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor, *, scale: dict[str, Tensor]) -> dict[str, Any]:
            x.add_(1)
            return {"loss": (x * scale["s"] * self.w).sum(), "more": (x * 2, [x])}

    x, s = torch.zeros(3), torch.ones(3)
    found = verify(Writes(), (x,), {"scale": {"s": s}}, plan=no_plan())
    assert found.ok
    assert x.tolist() == [0, 0, 0]


def test_inputs_that_another_graph_made(net: Net) -> None:
    source = torch.randn(4, 8, requires_grad=True)
    assert verify(net, (source * 2,), plan=no_plan()).ok
    assert source.grad is None


def test_a_loss_function_is_used(net: Net) -> None:
    def loss(output: Tensor) -> Tensor:
        return output.square().sum() * float("nan")

    assert verify(net, (inputs(),), loss=loss, plan=no_plan()).ok  # NaN everywhere, the same NaN


def test_steps_that_are_not_deterministic_get_a_stated_tolerance(net: Net) -> None:
    noise = iter([1.0, 1.0 + 1e-5, 1.0 - 1e-5] * 3)  # a kernel that adds in no fixed order

    class Shaky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)
            self.fault = 0.0

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) * (NOISE() + (self.fault if PLANNED else 0.0))

    NOISE: Callable[[], float] = lambda: next(noise)  # noqa: E731
    shaky = Shaky()
    found = verify(shaky, (torch.randn(2, 3),), plan=no_plan())
    assert found.ok
    assert "not deterministic" in found.tolerance
    shaky.fault = 0.1
    found = verify(shaky, (torch.randn(2, 3),), plan=no_plan())
    assert not found.ok


def test_a_plan_made_with_an_optimizer_counts_its_step(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = judge(net, optimizer="adam").baseline_peak_bytes
    monkeypatch.setattr("lowtide.acting.verify._has_optimizer", lambda _: True)
    counted = judge(net, optimizer="adam")
    assert counted.ok
    assert counted.baseline_peak_bytes > plain


@pytest.mark.parametrize("optimizer", [None, "adamw"])
def test_makes_a_plan_that_says_what_is_measured(optimizer: str | None) -> None:
    """Nothing replaced here: traced, planned with the kernels' scratch, and run."""
    blocks = (m for _ in range(4) for m in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()))
    model = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(8 * 32 * 32, 4), nn.Dropout())
    found = verify(model, (torch.randn(16, 8, 32, 32),), optimizer=optimizer, steps=2)
    assert found.ok
    assert found.peak_bytes < found.baseline_peak_bytes
    assert found.predicted_peak_bytes == pytest.approx(found.peak_bytes, rel=0.01)
    assert found.predicted_baseline_peak_bytes == pytest.approx(found.baseline_peak_bytes, rel=0.01)


def test_refuses_what_cannot_be_run(net: Net) -> None:
    with pytest.raises(InputError, match="'meta'"):
        verify(nn.Linear(2, 2, device="meta"), (torch.ones(1, 2),), plan=no_plan())
    with pytest.raises(InputError, match="not 0"):
        judge(net, steps=0)


def bits(*values: float, dtype: torch.dtype = torch.float32) -> Bits:
    return Bits.of(torch.tensor(values, dtype=dtype))


def test_bits() -> None:
    nan = float("nan")
    assert bits(nan).same(bits(nan))
    assert bits(nan).distance(bits(nan)) == 0
    assert not bits(0.0).same(bits(-0.0))
    assert not bits(1.0).same(bits(1.0, dtype=torch.float64))
    assert bits(1.0).distance(bits(1.0, 2.0)) == math.inf
    assert bits(1.0, nan).distance(bits(1.0, 2.0)) == math.inf
    assert bits(1.0, math.inf).distance(bits(3.0, math.inf)) == 2
    other = torch.tensor([nan])
    other.view(torch.int32).add_(1)
    assert not bits(nan).same(Bits.of(other))


@pytest.mark.parametrize(
    "dtype",
    [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.complex64, torch.complex128, torch.bool, torch.int64],
)
def test_bits_of_every_dtype(dtype: torch.dtype) -> None:
    t = torch.tensor([[0, 1], [1, 1]]).to(dtype).t()
    found = Bits.of(t)
    assert found.shape == (2, 2)
    assert found.same(Bits.of(t.clone()))
    assert torch.equal(found.values().to(torch.complex128), t.reshape(-1).to(torch.complex128))
    assert Bits.of(t[0, 0]).shape == ()
    assert not found.same(Bits.of(t[[1, 0]]))


def test_bits_does_not_share_memory() -> None:
    t = torch.zeros(3)
    found = Bits.of(t)
    t.fill_(1)
    assert found.scale() == 0
