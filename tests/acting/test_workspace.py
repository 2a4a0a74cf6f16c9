from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from lowtide.acting import workspace
from lowtide.acting.measure import measure
from lowtide.acting.meter import StorageMeter
from lowtide.acting.workspace import Call, Shape, Workspaces, call_of, workspace_bytes
from lowtide.planning.step import Op, Phase, Step

aten = torch.ops.aten
MIB = 2**20


def calls_of(run: Any) -> list[Call]:
    found: list[Call] = []

    class Look(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            call = call_of(func, args, kwargs or {})
            if call is not None:
                found.append(call)
            return func(*args, **(kwargs or {}))

    with Look():
        run()
    return found


def step_of(batch: int) -> Any:
    model = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3, stride=2))
    x = torch.randn(batch, 8, 48, 48, requires_grad=True)
    return lambda: model(x).sum().backward()


def test_scratch_and_outputs_make_up_the_record() -> None:
    """A convolution alone: what the allocator saw is its output and its workspace."""
    x, w = torch.randn(8, 32, 40, 40), torch.randn(32, 32, 3, 3)

    def run() -> Tensor:
        return aten.convolution(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)

    (call,) = calls_of(run)
    run()
    found = measure(run)
    assert found.end_bytes == x.numel() * 4
    assert found.peak_bytes == found.end_bytes + workspace_bytes(call)


def test_a_whole_step_adds_up() -> None:
    """Storages and the workspace of one op at a time bound what the allocator sees, and the dearest op shows."""
    step = step_of(8)
    step()
    with StorageMeter() as meter:
        step()
    most = max(workspace_bytes(c) for c in calls_of(step))
    assert most > 0
    assert meter.peak_bytes <= measure(step).peak_bytes <= meter.peak_bytes + most


def test_fake_calls_are_noted_as_real_ones() -> None:
    step = step_of(4)
    real = {c.key for c in calls_of(step)}
    with FakeTensorMode(allow_non_fake_inputs=True):
        fake = {c.key for c in calls_of(step_of(4))}
    assert real == fake
    assert {c.func._schema.name for c in calls_of(step)} == {
        "aten::convolution",
        "aten::convolution_backward",
        "aten::native_batch_norm_backward",
    }


def test_each_kind_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    call = calls_of(lambda: aten.roll(torch.ones(5, 1024, 3), [1], [1]))[0]
    seen: list[Call] = []
    monkeypatch.setattr(workspace, "_MEASURED", {})
    monkeypatch.setattr(workspace, "_measured", lambda c: seen.append(c) or 7)
    assert [workspace_bytes(call), workspace_bytes(call)] == [7, 7]
    assert len(seen) == 1


def test_large_calls_are_carried_on_from_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    call = calls_of(step_of(16))[-1]
    assert call.batch() == 16
    exact = workspace._measured(call)
    monkeypatch.setattr(workspace, "_LIMIT_BYTES", call.nbytes // 2)
    sizes: list[int] = []
    scratch = workspace._scratch
    monkeypatch.setattr(workspace, "_scratch", lambda c: sizes.append(c.batch()) or scratch(c))
    assert workspace._measured(call) == pytest.approx(exact, rel=0.05)
    assert sizes == [4, 8] or sizes == [2, 4]


def test_a_call_that_cannot_be_made_alone_counts_nothing() -> None:
    shape = Shape((2, 3), (3, 1), torch.float32)
    assert workspace_bytes(Call(aten.roll.default, (shape, ["no"]), {}, "a call that fails")) == 0


@pytest.mark.parametrize(
    "t",
    [
        torch.zeros(4, 3, 5, 5),
        torch.zeros(4, 3, 5, 5).to(memory_format=torch.channels_last),
        torch.zeros(4, 5, 3).transpose(1, 2),
        torch.zeros(1, 3, 1).expand(4, 3, 6),
        torch.zeros(()).expand(4, 2),
        torch.zeros(5, 4).t(),
    ],
)
def test_shapes_keep_their_layout(t: Tensor) -> None:
    shape = Shape(tuple(t.shape), t.stride(), t.dtype)
    made = shape.make()
    assert (made.shape, made.stride(), made.dtype) == (t.shape, t.stride(), t.dtype)
    assert made.untyped_storage().nbytes() == t.untyped_storage().nbytes()
    again = shape.with_batch(4)
    assert (again.size, again.stride) == (shape.size, shape.stride)
    other = shape.with_batch(7).make()
    order = sorted(range(t.dim()), key=lambda d: (t.stride(d), -d))
    assert order == sorted(range(t.dim()), key=lambda d: (other.stride(d), -d))


def test_other_devices_and_ops_are_passed_by() -> None:
    assert call_of(aten.add.Tensor, (torch.ones(2, 2), torch.ones(2, 2)), {}) is None
    meta = torch.ones(4, 8, device="meta")
    assert call_of(aten.roll.default, (meta, [1]), {}) is None


def op(moment: int) -> Op:
    return Op("aten.roll.default", Phase.FORWARD, "", (), (), (), 0, 0, moment, "", False)


def test_a_step_is_told() -> None:
    step = Step((op(0), op(1)), (), (), (), (0, 1), (0, 1), 2)
    calls = Workspaces()
    calls(aten.add.Tensor, (torch.ones(2), torch.ones(2)), {}, None)
    with pytest.raises(ValueError, match="1 calls were seen, but the step has 2 ops"):
        calls.told(step)
    x = torch.ones(8, 1024, 8)
    calls(aten.roll.default, (x, [1], [1]), {}, None)
    told = calls.told(step)
    assert told.workspace_bytes[0] == 0
    assert told.base_bytes == told.workspace_bytes
    assert told.digest == step.digest
    calls.begin()
    assert calls.calls == []
