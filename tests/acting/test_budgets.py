"""`lowtide.plan` under a budget or a limit on time, and what is then run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lowtide
from lowtide.acting import api
from lowtide.errors import InputError
from lowtide.planning.simulate import simulate
from tests.networks import NETWORKS, Network


def planned(network: Network, **options: Any) -> Any:
    return lowtide.plan(network.model, network.args, network.kwargs, loss=network.loss, **options)


@pytest.mark.parametrize(("name", "batch"), [("resnet18", 16), ("unet", 2), ("gpt2", 4)])
def test_a_plan_under_a_budget_runs_bit_for_bit(name: str, batch: int) -> None:
    network = NETWORKS[name](batch=batch)
    plan = planned(network, budget="75%", budget_of="step")
    assert plan.peak_bytes <= 0.75 * plan.baseline_peak_bytes
    assert plan.added_s > 0
    verdict = lowtide.verify(network.model, network.args, network.kwargs, loss=network.loss, plan=plan)
    assert verdict.ok, verdict


def test_what_a_budget_counts() -> None:
    step = lowtide.trace(*_small())
    top, standing = simulate(step).peak_bytes, step.standing_bytes
    whole = lowtide.plan(step, budget=int(0.9 * top) + standing)
    assert whole.total_peak_bytes <= int(0.9 * top) + standing
    above = lowtide.plan(step, budget=int(0.9 * top), budget_of="step")
    assert above.peak_bytes == whole.peak_bytes
    assert lowtide.plan(step, budget=top + standing).runs == {}


def test_a_budget_that_nothing_fits_is_an_error_with_a_remedy() -> None:
    step = lowtide.trace(*_small())
    with pytest.raises(InputError, match=r"no plan for budget=.*infeasible: no plan can be below .* raise it"):
        lowtide.plan(step, budget=step.standing_bytes + 1000)


def test_auto_is_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    step = lowtide.trace(*_small())
    needed = int(0.9 * simulate(step).peak_bytes) + step.standing_bytes
    monkeypatch.setattr(api, "available_bytes", lambda device: int(needed / 0.92) + 10)
    plan = lowtide.plan(step, budget="auto")
    assert plan.total_peak_bytes <= needed + 10
    assert plan.runs


def test_a_limit_on_time() -> None:
    step = lowtide.trace(*_small())
    peaks = [lowtide.plan(step, max_slowdown=x).peak_bytes for x in (0.0, 0.1, 0.3)]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < peaks[0]


def test_costs_are_the_steps_own_or_the_devices() -> None:
    step = lowtide.trace(*_small())
    assert lowtide.plan(step, max_slowdown=0.1, device="t4").step.meta["costs"] == "roofline of t4"
    own = lowtide.plan(step, max_slowdown=0.1, device="t4").step
    assert lowtide.plan(own, max_slowdown=0.1).step.seconds == own.seconds
    assert lowtide.plan(step).step.seconds == ()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"budget": "1GiB", "max_slowdown": 0.1}, "limit memory or work"),
        ({"budget": "much"}, "'much' is not a size"),
        ({"max_slowdown": 0.1, "solver": "frontier"}, "not 'frontier'"),
        ({"max_slowdown": -1.0}, "at least 0"),
        ({"device": "abacus"}, "unknown device 'abacus'"),
        ({"budget": "1GiB", "budget_of": "half"}, "budget_of='half'"),
    ],
)
def test_senseless_wishes_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        lowtide.plan(lowtide.trace(*_small()), **options)


def test_the_curve_of_a_model() -> None:
    model, args = _small()
    curve = lowtide.tradeoff(model, args, points=4, device="h100")
    assert curve.step.meta["costs"] == "roofline of h100"
    assert len(curve.points) >= 2
    assert lowtide.plan(curve.step, budget="100%").peak_bytes == curve.points[0].peak_bytes


def test_a_model_that_plans_for_itself_keeps_to_its_budget() -> None:
    model, args = _small()
    lowtide.checkpoint(model, budget="95%")
    model(*args).sum().backward()
    (plan,) = (made.plan for made in model.__dict__["_lowtide"].own.made.values())
    assert plan.runs
    assert plan.total_peak_bytes <= 0.95 * (plan.baseline_peak_bytes + plan.step.standing_bytes)


def _small() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = [torch.nn.Conv2d(3, 8, 3, padding=1)]
    for _ in range(5):
        layers += [torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers), (torch.randn(4, 3, 32, 32),)
