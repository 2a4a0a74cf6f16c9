from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from lowtide.acting import cost
from lowtide.acting.cost import Cache, Cost, Kind, Kinds, cache_path, costed, device_of, measured, time_call
from lowtide.acting.trace import trace
from lowtide.acting.workspace import Shape
from lowtide.errors import InputError
from lowtide.planning.cost import DEVICES

CPU = torch.device("cpu")


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.LazyLinear(2))


def model_and_input() -> tuple[nn.Module, torch.Tensor]:
    model, x = small(), torch.randn(2, 3, 8, 8)
    model(x)
    return model, x


def test_each_op_of_a_step_gets_what_its_kind_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = model_and_input()
    asked: list[str] = []

    def timed(kind: Kind, device: torch.device) -> Cost:
        asked.append(kind.key)
        return Cost(float(len(asked)), 10 * len(asked))

    monkeypatch.setattr(cost, "time_call", timed)
    kinds = Kinds()
    step = trace(model, (x,), observe=kinds)
    done = costed(step, kinds, CPU, Cache(tmp_path / "costs.json"))
    assert len(asked) == len(set(asked)) <= len(step.ops)
    assert all(s >= 1 for s in done.seconds)
    assert all(w == 10 * s for s, w in zip(done.seconds, done.workspace_bytes, strict=True))
    assert done.digest == step.digest
    assert done.meta["costs"] == "measured on cpu"

    asked.clear()  # the file knows them all
    again = costed(step, kinds, CPU, Cache(tmp_path / "costs.json"))
    assert asked == []
    assert again.seconds == done.seconds


def test_real_calls_take_time_and_workspace(tmp_path: Path) -> None:
    model, x = model_and_input()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = torch.random.get_rng_state()
    step = measured(model, (x,), device="cpu", cache=tmp_path / "costs.json")
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert len(step.seconds) == len(step.workspace_bytes) == len(step.ops)
    assert all(0 < s < 5 for s in step.seconds)
    assert all(0 <= w < 2**30 for w in step.workspace_bytes)
    assert (tmp_path / "costs.json").exists()


def test_arguments_are_made_with_their_layout() -> None:
    t = torch.randn(4, 5).t()
    kind = Kind(None, (Shape(tuple(t.shape), t.stride(), t.dtype), 3, [Shape((2,), (1,), torch.int64)]), {})
    (made, three, (whole,)), kwargs = kind.make(CPU)
    assert (made.shape, made.stride()) == (t.shape, t.stride())
    assert (three, kwargs) == (3, {})
    assert whole.dtype == torch.int64


def test_longer_calls_take_longer() -> None:
    def product(n: int) -> Cost:
        shape = Shape((n, n), (n, 1), torch.float32)
        return time_call(Kind(torch.ops.aten.mm.default, (shape, shape), {}), CPU)

    assert product(512).seconds > product(8).seconds


def test_what_cannot_be_called_alone_gets_its_share_of_the_roofline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = model_and_input()

    def timed(kind: Kind, device: torch.device) -> Cost:
        if "convolution" in kind.key:
            raise RuntimeError("no")
        return Cost(1.0, 0)

    monkeypatch.setattr(cost, "time_call", timed)
    kinds = Kinds()
    step = trace(model, (x,), observe=kinds)
    done = costed(step, kinds, CPU, Cache(None))
    convolutions = [s for op, s in zip(step.ops, done.seconds, strict=True) if "convolution" in op.name]
    assert all(0.1 < s < 100 for s in convolutions)
    assert all(s == 1.0 for op, s in zip(step.ops, done.seconds, strict=True) if "convolution" not in op.name)


def test_calls_of_another_step_are_refused() -> None:
    step = trace(nn.Linear(2, 2), (torch.ones(1, 2),))
    with pytest.raises(InputError, match="0 calls were seen, but the step has"):
        costed(step, Kinds(), CPU, Cache(None))


@pytest.mark.parametrize("text", ["", "no json", "[1, 2]", '{"a": [1]}'])
def test_a_damaged_file_is_done_without(tmp_path: Path, text: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    cache = Cache(path)
    assert cache.costs == {}
    kind = Kind("f", (), {})
    cache.put(kind, Cost(1.5, 7))
    cache.save()
    assert Cache(path).get(kind) == Cost(1.5, 7)


def test_a_file_that_cannot_be_written_is_done_without() -> None:
    cache = Cache(Path("/proc/no/such/folder/costs.json"))
    cache.put(Kind("f", (), {}), Cost(1.0, 0))
    cache.save()


def test_files_are_by_device_and_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = cache_path(CPU)
    assert path.parent == tmp_path / "lowtide" / "costs"
    assert path.name.startswith("cpu-")
    assert torch.__version__.split("+")[0] in path.name


def test_devices() -> None:
    assert device_of("cpu") == CPU
    with pytest.raises(InputError, match="cannot measure on 'meta'"):
        device_of("meta")
    with pytest.raises(InputError, match="'no such device' is no device"):
        device_of("no such device")
    assert cost.device_at_hand() in DEVICES


def test_plans_can_be_made_for_measured_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model, x = model_and_input()
    plan: Any = lowtide.plan(model, (x,), max_slowdown=0.5, device="measured")
    assert plan.step.meta["costs"] == "measured on cpu"
    assert plan.slowdown <= 0.5
    with pytest.raises(InputError, match="needs the model"):
        lowtide.plan(plan.step, device="measured")
