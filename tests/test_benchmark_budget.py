from __future__ import annotations

import pytest
import torch
from torch import nn

import lowtide
from benchmarks import budget
from benchmarks.budget import Planner
from benchmarks.budget_nets import loss_of
from benchmarks.budget_rivals import rivals
from lowtide.planning.cost import DEVICES, roofline
from tests.networks import Network

A100 = DEVICES["a100"]


def small() -> Network:
    with torch.device("meta"):
        layers = [m for _ in range(6) for m in (nn.Linear(64, 64, bias=False), nn.GELU())]
        model = nn.Sequential(*layers).train()
        x = torch.empty(256, 64, requires_grad=True)
    for t in (*model.parameters(), x):
        t.grad = torch.empty_like(t)
    return Network(model, (x,))


@pytest.mark.slow
def test_rivals_are_counted_as_steps_are() -> None:
    step = roofline(lowtide.trace(small().model, small().args), A100)
    found = [(p, plain) for p, plain in rivals("small", small, A100, quick=True) if p.name.startswith("compile")]
    assert len(found) == 2
    plain = found[0][1]
    assert plain.flops == step.total_flops
    assert 0.7 * step.total_seconds < plain.seconds <= step.total_seconds  # without the engine's adding of gradients
    assert plain.peak_bytes == pytest.approx(lowtide.simulate(step).peak_bytes, rel=0.1)
    assert min(p.peak_bytes for p, _ in found) < plain.peak_bytes


def test_a_planner_keeps_below_a_point_in_peak_flops_and_seconds() -> None:
    network = small()
    step = lowtide.trace(network.model, network.args)
    planner = Planner(step, A100)
    peak = int(0.7 * lowtide.simulate(step).peak_bytes)
    plan = planner.under(peak, 0.1 * step.total_flops, 0.2 * planner.step.total_seconds)
    assert plan.peak_bytes < peak
    assert plan.recompute_flops <= 0.1 * step.total_flops
    assert plan.slowdown <= 0.2
    assert loss_of(network).device.type == "meta"


@pytest.mark.slow
def test_small_steps_are_near_proven_optima(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ortools")
    assert budget.main(["--only", "gap", "--quick"]) == 0
    assert "2 of 2 limits kept" in capsys.readouterr().out
