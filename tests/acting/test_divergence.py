"""Steps that are not the one the plan was made for: other sizes fit, other ops are found out, and nothing is wrong."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.acting.meter import StorageMeter
from lowtide.acting.ops import op_info
from lowtide.acting.stream import Stream
from lowtide.acting.table import table_of
from lowtide.planning.judge import judge
from lowtide.planning.plan import Plan
from tests.outcome import bits
from tests.plans import drop_everything, random_plan


class Net(nn.Module):
    """Six layers; `variant` says what is different about this step."""

    def __init__(self, variant: str = "") -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))
        self.variant = variant

    def forward(self, x: Tensor) -> Tensor:
        v = self.variant
        layers = list(self.layers)
        if v == "a layer dropped":
            del layers[2]
        elif v == "a layer twice":
            layers.insert(2, layers[2])
        elif v == "two layers swapped":
            layers[1], layers[3] = layers[3], layers[1]
        elif v == "another depth":
            layers = layers[:2]
        elif v == "a longer loop":
            layers *= 3
        earlier = x
        for k, layer in enumerate(layers):
            h = layer(x)
            if v == "one op more" and k == 2:
                h = h.neg()
            if v == "another op" and k == 2:
                h = torch.sigmoid(h)
            elif not (v == "one op less" and k == 2):
                h = torch.tanh(h)
            if v == "another op in place" and k == 3:
                h = (h * 1).mul_(1.5)
            if v == "other values" and k >= 2:
                earlier, x = x, earlier + h * 0.5  # the skip comes from one layer further back
            elif v == "values swapped" and k >= 2:
                earlier, x = x, h + h * 0.5
            else:
                earlier, x = x, x + h * 0.5
            if v == "another function" and k == 1:
                x = x.sin().cos().exp()
        return x


VARIANTS = [
    "one op more", "one op less", "another op", "another op in place", "other values", "values swapped",
    "a layer dropped", "a layer twice", "two layers swapped", "another depth", "a longer loop", "another function",
]  # fmt: skip


def step(variant: str, plan: Plan | None, batch: int = 4) -> list[Any]:
    torch.manual_seed(0)
    model, x = Net(variant), torch.randn(batch, 8, requires_grad=True)
    with lowtide.remat(plan) if plan else contextlib.nullcontext():
        loss = model(x).square().sum()
    loss.backward()
    return [bits(loss), bits(x.grad), *(bits(p.grad) for p in model.parameters())]


def plans(variant: str = "") -> list[Plan]:
    traced = lowtide.trace(Net(variant), (torch.randn(4, 8, requires_grad=True),), loss=lambda y: y.square().sum())
    return [drop_everything(traced), *(random_plan(traced, k) for k in range(5))]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.filterwarnings("ignore:this step leaves its plan")
def test_another_step_under_the_plan_is_right(variant: str) -> None:
    for batch in (4, 7):
        plain = step(variant, None, batch)
        for plan in plans():
            assert step(variant, plan, batch) == plain
    plain = step("", None)
    for plan in plans(variant):
        assert step("", plan) == plain


def test_another_batch_is_no_other_step() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in (1, 2, 9):
            plain = step("", None, batch)
            for plan in plans():
                assert step("", plan, batch) == plain


def test_a_plan_for_an_altogether_different_model() -> None:
    class Convolutions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Sequential(
                nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.Conv2d(4, 4, 3), nn.Sigmoid()
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.f(x)

    plan = drop_everything(lowtide.trace(Convolutions(), (torch.randn(2, 3, 8, 8),)))
    plain = step("", None)
    with pytest.warns(UserWarning, match=r"in f\.0: the plan has aten\.convolution\.default there, the step runs"):
        assert step("", plan) == plain


def test_it_warns_once_and_says_where() -> None:
    plan = plans()[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step("a longer loop", plan)  # the loss is not where it is in the plan
        step("another depth", plan)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step("another function", plan)
    plan = plans()[0]
    with pytest.warns(UserWarning, match=r"leaves its plan in layers\.2: the plan has aten\.addmm.* runs aten\.pow"):
        step("another depth", plan)


def test_a_few_ops_more_or_less_are_no_reason_to_warn() -> None:
    for variant in ("one op more", "one op less", "another op", "another function"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            step(variant, plans()[0])


def ops_run(variant: str, plan: Plan | None) -> int:
    torch.manual_seed(0)
    model, x = Net(variant), torch.randn(64, 8)
    with StorageMeter() as meter:
        with lowtide.remat(plan) if plan else contextlib.nullcontext():
            loss = model(x).square().sum()
        loss.backward()
    return meter.ops


@pytest.mark.parametrize("variant", ["", "one op more", "one op less", "another op", "another function"])
def test_the_plan_still_serves_around_a_few_other_ops(variant: str) -> None:
    plan = plans()[0]
    again = ops_run(variant, plan) - ops_run(variant, None)
    assert again >= plan.recompute_ops * (1.0 if variant == "" else 0.6)


# -- the stream itself ----------------------------------------------------------------------------------------------


def names(plan: Plan) -> list[Any]:
    return [e.func for e in table_of(plan).entries]


def followed(plan: Plan, live: list[Any]) -> list[int]:
    """For each live op the plan's op it is taken for, or -1."""
    stream = Stream(table_of(plan))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [stream.next(f, op_info(f)) for f in live]
        stream.close()
    return [-1 if e is None else e.op for e in found]


def test_the_same_stream_is_followed_to_its_end() -> None:
    plan = plans()[0]
    live = names(plan)
    stream = Stream(table_of(plan))
    assert [stream.next(f, op_info(f)) for f in live] == list(table_of(plan).entries)
    assert stream.over
    assert stream.next(live[0], op_info(live[0])) is None


@pytest.mark.parametrize("at", [0, 1, 5, 12, -1])
def test_more_less_and_other_ops_are_stepped_over(at: int) -> None:
    plan = plans()[0]
    live = names(plan)
    n = len(live)
    at %= n
    odd = torch.ops.aten.erfinv.default
    more = [*live[:at], odd, odd, *live[at:]]
    assert followed(plan, more) == [*range(at), -1, -1, *range(at, n)]
    other = [*live[:at], odd, *live[at + 1 :]]
    found = followed(plan, other)
    assert found[:at] == list(range(at))
    assert found[at] == -1
    if n - at > 4:
        assert found[-1] == n - 1
        assert found.count(-1) <= 4
    copies = [*live[:at], torch.ops.aten.clone.default, *live[at:]]
    assert followed(plan, copies) == [*range(at), -1, *range(at, n)]


# -- checkpoint plans by itself -------------------------------------------------------------------------------------


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `lowtide.checkpoint` plans: the shapes of the inputs, one entry a plan."""
    from lowtide.acting import api

    seen: list[Any] = []
    original = api.costed_step

    def costed_step(model: Any, args: Any, *more: Any) -> Any:
        if isinstance(model, nn.Module):
            seen.append([tuple(a.shape) for a in args if isinstance(a, Tensor)])
        return original(model, args, *more)

    monkeypatch.setattr(api, "costed_step", costed_step)
    return seen


def train(model: nn.Module, *batches: int) -> list[Any]:
    found: list[Any] = []
    for n in batches:
        torch.manual_seed(n)
        x = torch.randn(n, 8, requires_grad=True)
        model.zero_grad()
        model(x).square().sum().backward()
        found += [bits(p.grad) for p in model.parameters()]
    return found


def test_checkpoint_plans_once_for_each_shape(planned: list[Any]) -> None:
    torch.manual_seed(0)
    model = Net()
    plain = train(model, 4, 4, 6, 4, 6)
    lowtide.checkpoint(model)
    assert train(model, 4, 4, 6, 4, 6) == plain
    assert planned == [[(4, 8)], [(6, 8)]]
    model.eval()
    model(torch.randn(9, 8))
    model.train()
    with torch.no_grad():
        model(torch.randn(10, 8))
    assert len(planned) == 2


def test_checkpoint_forgets_the_plan_used_longest_ago(planned: list[Any]) -> None:
    model = lowtide.checkpoint(Net(), max_plans=2)
    train(model, 1, 2, 1, 3, 1, 2)
    assert planned == [[(1, 8)], [(2, 8)], [(3, 8)], [(2, 8)]]


def test_checkpoint_of_a_model_whose_first_step_is_another() -> None:
    """Caches filled at the first call, counters that start as None."""

    class Lazy(Net):
        mask: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.mask is None:
                self.mask = torch.linspace(0, 1, 8).sin().exp()
            return super().forward(x * self.mask)

    torch.manual_seed(0)
    plain = train(Lazy(), 4, 4, 4)
    torch.manual_seed(0)
    assert train(lowtide.checkpoint(Lazy()), 4, 4, 4) == plain


def test_a_save_that_the_plan_does_not_know_of_is_kept() -> None:
    """It is asked for when the plan has let go of what it would be made from."""

    class Two(nn.Module):
        def __init__(self, frozen: bool) -> None:
            super().__init__()
            self.f, self.g = nn.Linear(8, 8), nn.Linear(8, 8)
            self.g.weight.requires_grad_(not frozen)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            v = self.f(x).neg()
            return v.square(), self.g(v)  # g saves v only if its weight is trained

    def once(plan: Plan | None) -> list[Any]:
        torch.manual_seed(0)
        model, x = Two(frozen=False), torch.randn(4, 8)
        with lowtide.remat(plan) if plan else contextlib.nullcontext():
            square, linear = (t.sum() for t in model(x))
        square.backward()
        (g,) = torch.autograd.grad(linear, model.g.weight)
        return [bits(g), *(bits(p.grad) for p in model.parameters())]

    traced = lowtide.trace(Two(frozen=True), (torch.randn(4, 8),))
    linear, negated = (
        next(op for op in traced.ops if "addmm" in op.name),
        next(op for op in traced.ops if "neg" in op.name),
    )
    (moment,) = (u for s in traced.saves if s.value in negated.writes for u in s.uses)
    plan = judge(traced, linear.writes, {moment: (traced.ops.index(negated),)}, "by hand", "for tests")
    assert once(plan) == once(None)
