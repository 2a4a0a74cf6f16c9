"""A model that plans for itself plans again where its plan does not serve, and only there."""

from __future__ import annotations

import copy
import random
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.acting import own_plans
from lowtide.acting.own_plans import OwnPlans
from lowtide.errors import InputError
from lowtide.planning.plan import Plan
from tests.outcome import bits


class Net(nn.Module):
    """`depth` says how many of the layers run; `drop` leaves some out at random."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(24))
        self.depth, self.drop, self.other = 24, 0.0, False

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[: self.depth]:
            if self.drop and random.random() < self.drop:
                x = x.sin().cos().exp().sin().cos().exp()
            x = torch.sigmoid(layer(x).exp()) if self.other else torch.tanh(layer(x))
        return x


def self_planned(**options: Any) -> tuple[nn.Module, OwnPlans]:
    torch.manual_seed(0)
    model = lowtide.checkpoint(Net(), **options)
    return model, model.__dict__["_lowtide"].own


def step(model: nn.Module, batch: int = 64) -> list[Any]:
    torch.manual_seed(batch)
    model(torch.randn(batch, 16)).sum().backward()
    return [bits(p.grad) for p in model.parameters()]


def plans(own: OwnPlans) -> list[Plan]:
    return [made.plan for made in own.made.values()]


def baseline() -> Plan:
    return lowtide.plan(Net(), (torch.randn(64, 16),))


def test_a_step_that_takes_another_course_is_planned_again() -> None:
    model, own = self_planned()
    step(model)
    (first,) = plans(own)
    model.other = True
    model.zero_grad()
    with pytest.warns(UserWarning, match="leaves its plan"):
        got = step(model)
    model.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert step(model) == got
    (second,) = plans(own)
    assert second.step.digest != first.step.digest
    assert second.runs
    torch.manual_seed(0)
    plain = Net()
    plain.other = True
    assert step(plain) == got


@pytest.mark.filterwarnings("ignore:this step leaves its plan")
def test_steps_that_differ_every_time_are_not_planned_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = self_planned()
    made: list[Any] = []
    original = OwnPlans._plan
    monkeypatch.setattr(OwnPlans, "_plan", lambda self, *a: made.append(1) or original(self, *a))
    model.drop = 0.3
    random.seed(0)
    for _ in range(12):
        step(model)
    assert 1 <= len(made) <= 1 + own_plans._PATIENCE


def test_what_a_trace_does_not_show_is_not_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A course that the model takes for real only: the trace is the same, and so would be the plan."""

    class Live(Net):
        def forward(self, x: Tensor) -> Tensor:
            self.other = not isinstance(x, torch._subclasses.FakeTensor)
            return super().forward(x)

    model = lowtide.checkpoint(Live())
    own: OwnPlans = model.__dict__["_lowtide"].own
    made: list[Any] = []
    original = OwnPlans._plan
    monkeypatch.setattr(OwnPlans, "_plan", lambda self, *a: made.append(1) or original(self, *a))
    with pytest.warns(UserWarning, match="leaves its plan"):
        step(model)
    for _ in range(4):
        model.zero_grad()
        step(model)
    assert len(made) == 2
    assert len(own.made) == 1


def test_nor_if_the_plan_holds_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its step is not quite the traced one then."""

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(3, 16, 3), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.MaxPool2d(2)
            )

        def forward(self, x: Tensor) -> Tensor:
            if not isinstance(x, torch._subclasses.FakeTensor):
                for _ in range(12):
                    x = x.sin().cos().exp()
            return self.body(x)

    model = lowtide.checkpoint(Pooled())
    own: OwnPlans = model.__dict__["_lowtide"].own
    made: list[Any] = []
    original = OwnPlans._plan
    monkeypatch.setattr(OwnPlans, "_plan", lambda self, *a: made.append(1) or original(self, *a))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(5):
            model.zero_grad()
            model(torch.randn(4, 3, 64, 64)).sum().backward()
    (plan,) = plans(own)
    assert plan.step.codes
    assert len(made) == 2


def test_who_is_trained_decides_on_the_plan() -> None:
    model, own = self_planned()
    step(model)
    model.layers[:12].requires_grad_(False)  # pyright: ignore
    step(model)
    assert len(plans(own)) == 2
    model.requires_grad_(True)
    step(model)
    model.layers[3].eval()  # pyright: ignore
    step(model)
    assert len(plans(own)) == 3


def test_gradients_that_are_there_count_against_the_budget() -> None:
    without = baseline()
    standing = without.step.standing_bytes
    room = int(0.4 * without.peak_bytes + 0.6 * without.baseline_peak_bytes)
    model, own = self_planned(budget=standing + room)
    step(model)
    (first,) = plans(own)
    model.zero_grad()
    step(model)
    assert plans(own) == [first]
    step(model)  # gradients are added up
    (second,) = plans(own)
    assert second is not first
    gradients = sum(p.numel() * 4 for p in model.parameters())
    assert second.step.standing_bytes == standing + gradients
    assert second.total_peak_bytes <= standing + room
    assert second.recompute_ops > first.recompute_ops
    for zero in (True, False, True):
        if zero:
            model.zero_grad()
        step(model)
    assert plans(own) == [second]
    model.zero_grad()
    own.budget = second.total_peak_bytes + 256
    step(model)
    assert plans(own) == [second]
    model.zero_grad()
    model.register_buffer("cache", torch.zeros(128))  # the gradients will be there again
    step(model)
    assert plans(own) != [second]


def test_what_is_free_may_become_less(monkeypatch: pytest.MonkeyPatch) -> None:
    least = baseline()
    top = least.baseline_peak_bytes + least.step.standing_bytes
    free = [2 * top]
    monkeypatch.setattr(own_plans, "available_bytes", lambda _: free[0])
    model, own = self_planned(budget="auto")
    step(model)
    (first,) = plans(own)
    assert not first.runs
    model.zero_grad()
    free[0] = int(0.9 * top / 0.92)
    step(model)
    (second,) = plans(own)
    assert second.runs
    assert second.total_peak_bytes <= 0.9 * top
    model.zero_grad()
    free[0] = least.step.standing_bytes
    with pytest.warns(UserWarning, match=r"budget='auto' leaves .* whose least peak is .* plan of least peak"):
        step(model)
    (third,) = plans(own)
    assert third.peak_bytes <= second.peak_bytes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.zero_grad()
        step(model)
    assert plans(own) == [third]


def test_what_never_fits_is_an_error_at_the_first_call_and_a_warning_later() -> None:
    least = baseline()
    model, _ = self_planned(budget=least.step.standing_bytes + 100)
    with pytest.raises(InputError, match="no plan for budget"):
        step(model)
    model, own = self_planned(budget=least.total_peak_bytes + 1000)
    step(model)
    model.zero_grad()
    with pytest.warns(UserWarning, match="plan of least peak"):
        found = step(model, batch=256)
    assert len(plans(own)) == 2
    torch.manual_seed(0)
    assert step(Net(), batch=256) == found


def test_a_copy_has_plans_of_its_own() -> None:
    model, own = self_planned()
    step(model)
    twin = copy.deepcopy(model)
    step(twin, batch=32)
    assert len(twin.__dict__["_lowtide"].own.made) == 2
    assert len(own.made) == 1


def test_a_share_of_the_peak_needs_no_room() -> None:
    model, own = self_planned(budget="90%")
    for _ in range(3):
        step(model)
    (plan,) = plans(own)
    assert plan.total_peak_bytes <= 0.9 * (plan.baseline_peak_bytes + plan.step.standing_bytes)
