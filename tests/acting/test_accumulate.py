"""Which gradients the engine adds up in place, against what it does when nobody watches: the profiler's list of ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from lowtide.acting.accumulate import adds_in_place


def three_uses(x: Tensor, w: Tensor) -> Tensor:
    return x.sin().sum() + x.cos().sum() + x.exp().sum()


def skip(x: Tensor, w: Tensor) -> Tensor:
    return ((x + x.sin()) * 2).sum()


def two_skips(x: Tensor, w: Tensor) -> Tensor:
    return ((x + x.sin() + x.cos()) * 2).sum()


def shared_gradient(x: Tensor, w: Tensor) -> Tensor:
    return (x + (x + x.sin())).sum()


def relu_block(x: Tensor, w: Tensor) -> Tensor:
    y = torch.relu(x + torch.sin(x @ w))
    return torch.relu(y + torch.sin(y @ w)).sum()


def views(x: Tensor, w: Tensor) -> Tensor:
    return x.view(-1).sin().sum() + x.t().cos().sum()


def products(x: Tensor, w: Tensor) -> Tensor:
    return ((x @ w).sin() + (x @ w.t()).cos() + x).sum()


def expanded(x: Tensor, w: Tensor) -> Tensor:
    return x.sum() + x.sin().sum() + x.sum()


def sliced(x: Tensor, w: Tensor) -> Tensor:
    return x[:4].sin().sum() + x[4:].cos().sum() + torch.cat([x, x]).exp().sum()


CASES = [three_uses, skip, two_skips, shared_gradient, relu_block, views, products, expanded, sliced]


def leaves() -> tuple[Tensor, Tensor]:
    return torch.ones(8, 8, requires_grad=True), torch.ones(8, 8, requires_grad=True)


def alone(case: Callable[[Tensor, Tensor], Tensor]) -> list[bool]:
    x, w = leaves()
    loss = case(x * 1.0, w)
    with profile(activities=[ProfilerActivity.CPU]) as watch:
        loss.backward()
    events = sorted(watch.events(), key=lambda e: e.time_range.start)
    return [e.name == "aten::add_" for e in events if e.name in ("aten::add", "aten::add_")]


class Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.answers: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.add.Tensor and torch._C._current_graph_task_id() != -1:
            self.answers.append(adds_in_place(func, args, kwargs))
        return func(*args, **kwargs)


def watched(case: Callable[[Tensor, Tensor], Tensor]) -> list[bool]:
    x, w = leaves()
    with Watch() as watch:
        case(x * 1.0, w).backward()
    return watch.answers


@pytest.mark.parametrize("case", CASES)
def test_says_what_the_engine_does_alone(case: Callable[[Tensor, Tensor], Tensor]) -> None:
    found = watched(case)
    assert found
    assert found == alone(case)


@pytest.mark.parametrize("case", CASES)
def test_the_same_on_fake_tensors(case: Callable[[Tensor, Tensor], Tensor]) -> None:
    expected = alone(case)
    with FakeTensorMode():
        assert watched(case) == expected


def test_both_answers_occur() -> None:
    assert {a for case in CASES for a in watched(case)} == {True, False}


def test_an_addition_in_forward_or_of_ones_own_is_none() -> None:
    a, b = torch.ones(3), torch.ones(3)
    assert not adds_in_place(torch.ops.aten.add.Tensor, (a, b), {})
