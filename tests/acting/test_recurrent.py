"""LSTMs: what their kernels leave for backward and take on the way is in the plan."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.acting import recurrent, workspace
from lowtide.acting.measure import measure
from lowtide.acting.workspace import Workspaces, call_of
from lowtide.planning.simulate import simulate

aten = torch.ops.aten


class Tagger(nn.Module):
    """(N, T, 24) -> (N, T, 40), by two LSTM layers that read both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(24, 32, num_layers=2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(64, 40)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(x)[0])


def arguments(times: int, batch: int, features: int = 24, hidden: int = 32) -> tuple[Any, ...]:
    """Forward's."""
    gates = 4 * hidden
    weights = torch.zeros(gates, features), torch.zeros(gates, hidden), torch.zeros(gates), torch.zeros(gates)
    state = torch.zeros(batch, hidden), torch.zeros(batch, hidden)
    return (torch.zeros(times, batch, features), *weights, *state, False, [], 2, hidden, 1, True, False, False, True)


@pytest.mark.parametrize(("batch", "times"), [(16, 12), (8, 60)])
def test_a_step_with_lstms_takes_what_was_predicted(batch: int, times: int) -> None:
    torch.manual_seed(0)
    model, x = Tagger(), torch.randn(batch, times, 24)
    calls = Workspaces()
    step = calls.told(lowtide.trace(model, (x,), observe=calls))
    plan = lowtide.plan(step, solver="frontier")
    assert plan.peak_bytes < plan.baseline_peak_bytes

    def run() -> None:
        model.zero_grad()
        model(x).sum().backward()

    assert simulate(step).peak_bytes == pytest.approx(measure(run).peak_bytes, rel=0.015)
    with lowtide.remat(plan):
        found = measure(run).peak_bytes
    assert plan.peak_bytes == pytest.approx(found, rel=0.015)


@pytest.mark.parametrize("batch", [1, 7, 32])
def test_the_buffer_is_as_large_as_the_kernels(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for times in (1, 5, 16, 40):
        args = arguments(times, batch)
        real = aten.mkldnn_rnn_layer.default(*args)[3].nbytes
        assert recurrent.buffer_bytes(args) == real
        with monkeypatch.context() as m:
            m.setattr(recurrent, "_SIZES", {})
            m.setattr(recurrent, "_MOST_WORK", 0)
            pages = 4 * 4096 * (times > 16) * (times - 16) / 8
            assert recurrent.buffer_bytes(args) == pytest.approx(real, rel=0.0, abs=pages)


def test_other_ops_and_real_outputs_are_left_alone() -> None:
    x = torch.ones(2)
    assert recurrent.with_buffer(aten.neg.default, (x,), x) is x
    args = arguments(2, 3)
    out = aten.mkldnn_rnn_layer.default(*args)
    assert recurrent.with_buffer(aten.mkldnn_rnn_layer.default, args, out) is out


def test_backward_alone_gets_a_buffer_that_forward_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shorter one would be written past its end; a smaller batch of a large call needs one of its own."""
    args = arguments(6, 4)
    output, h, c, buffer = aten.mkldnn_rnn_layer.default(*args)
    rest = (False, 2, 32, 1, True, True, False, [], False)
    call = call_of(
        aten.mkldnn_rnn_layer_backward.default,
        (*args[:7], output, h, c, torch.ones_like(output), None, None, *rest, buffer[:1]),
        {},
    )
    assert call is not None
    seen: list[int] = []
    given = recurrent.with_real_buffer
    monkeypatch.setattr(recurrent, "with_real_buffer", lambda a: seen.append(given(a)[22].nbytes) or given(a))
    assert workspace._scratch(call) >= 0
    assert workspace._scratch(call.with_batch(3)) >= 0
    assert seen == [buffer.nbytes, aten.mkldnn_rnn_layer.default(*arguments(3, 4))[3].nbytes]
