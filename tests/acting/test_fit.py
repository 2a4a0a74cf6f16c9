from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.acting.fit import MARGIN, Fit, fit
from lowtide.acting.trace import trace
from lowtide.errors import InputError, TraceError
from lowtide.planning.simulate import simulate

MIB = 2**20


def network(width: int = 8, depth: int = 6) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    with torch.device("meta"):
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 4))


def image(n: int) -> Tensor:
    return torch.empty(n, 3, 32, 32, device="meta")


def total(model: nn.Module, n: int, plan: Any = None, optimizer: Any = None) -> int:
    step = trace(model, (image(n),), optimizer=optimizer)
    return simulate(step, None if plan is None else (plan.keep, plan.runs)).total_peak_bytes


def found(memory: int, **options: Any) -> Fit:
    return fit(network(), (image(1),), memory=memory, device="a100", **options)


def test_sizes_fit_and_the_next_does_not() -> None:
    model = network()
    f = found(64 * MIB)
    limit = int(64 * MIB * (1 - MARGIN))
    assert total(model, f.plain.n) == f.plain.total_peak_bytes <= limit < total(model, f.plain.n + 1)
    for size in (f.quick, f.largest):
        assert size.plan is not None
        assert total(model, size.n, size.plan) == size.total_peak_bytes <= limit
    assert f.plain.n < f.quick.n <= f.largest.n
    assert f.quick.slowdown <= 0.1 + 1e-6
    assert f.largest.slowdown <= 0.34 + 1e-6
    assert f.plain.added_s == 0


def test_an_optimizer_takes_its_part() -> None:
    plain, adam = found(8 * MIB, margin=0.0), found(8 * MIB, margin=0.0, optimizer="adamw")
    assert adam.plain.n <= plain.plain.n
    assert adam.fixed_bytes["optimizer"] >= 2 * adam.fixed_bytes["parameter"] > 0
    assert adam.plain.total_peak_bytes == total(network(), adam.plain.n, optimizer="adamw")


def test_more_memory_is_never_worse() -> None:
    sizes = [found(m * MIB).plain.n for m in (4, 8, 16)]
    assert sizes == sorted(sizes)
    assert sizes[0] > 0


def test_what_does_not_fit_is_said() -> None:
    f = found(MIB // 64)
    assert (f.plain.n, f.quick.n, f.largest.n) == (0, 0, 0)
    assert "does not fit" in repr(f)


def test_arguments_can_be_made_by_the_user() -> None:
    asked: list[int] = []

    def make(n: int) -> tuple[tuple[Tensor], dict[str, Any]]:
        asked.append(n)
        return (image(n),), {}

    f = fit(network(), memory=16 * MIB, make_args=make, device="a100")
    assert f.plain.n == found(16 * MIB).plain.n
    assert f.plain.n in asked
    assert fit(network(), memory=16 * MIB, make_args=image, device="a100").plain.n == f.plain.n


class Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)

    def forward(self, ids: Tensor) -> Tensor:
        return self.layer(self.embedding(ids)).sum()


def test_lengths_grow_too() -> None:
    with torch.device("meta"):
        model, ids = Sequence(), torch.zeros(2, 8, dtype=torch.int64)
    f = fit(model, (ids,), memory=8 * MIB, grow=1, device="a100")
    assert 8 < f.plain.n <= f.largest.n
    step = trace(model, (torch.zeros(2, f.plain.n, dtype=torch.int64, device="meta"),))
    assert simulate(step).total_peak_bytes == f.plain.total_peak_bytes


def test_its_text_and_json() -> None:
    f = found(16 * MIB)
    text = repr(f)
    assert f"{f.plain.n:,}" in text
    assert "at most 10.0 % more time" in text
    assert "6.0 % of it left free" in text
    data = json.loads(json.dumps(f.to_json()))
    assert data["largest"]["n"] == f.largest.n
    assert data["plain"]["per_second"] == f.plain.per_second > 0


def test_the_model_is_left_as_it_was() -> None:
    model = network()
    before = dict(model.named_parameters())
    fit(model, (image(1),), memory=4 * MIB, device="a100")
    assert all(p is before[name] and p.grad is None for name, p in model.named_parameters())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"memory": "lots"}, "not a size"),
        ({"memory": "1MiB", "margin": 1.0}, "margin=1.0"),
        ({"memory": "1MiB", "grow": 7}, "no input has a dimension 7"),
        ({"memory": "1MiB", "device": "a1"}, "unknown device"),
    ],
)
def test_senseless_questions_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        fit(network(), (image(1),), **options)


def test_it_is_in_the_library() -> None:
    assert lowtide.fit is fit
    assert lowtide.Fit is Fit


def test_a_loss_for_one_size_alone_is_told_to_be_the_reason() -> None:
    labels = torch.zeros(2, 4)
    with pytest.raises(TraceError, match=r"\(that was at size 4: inputs, loss and labels must be"):
        fit(network(), (image(2),), memory=2**30, device="a100", loss=lambda y: (y - labels).square().sum())


@pytest.mark.parametrize("memory", [24 * MIB, 40 * MIB])
def test_plans_keep_to_their_limit_on_time_at_the_size_they_are_for(memory: int) -> None:
    """One made for a smaller size adds a larger share at a larger one, where launches weigh less."""
    net = network(16)
    for p in net.parameters():
        p.grad = torch.empty_like(p)
    fits = fit(net, (image(4),), memory=memory, device="a100")
    assert 0 < fits.quick.slowdown <= 0.1
    assert 0 < fits.largest.slowdown <= 0.34
