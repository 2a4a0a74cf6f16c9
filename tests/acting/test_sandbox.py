"""Stand-ins, and putting everything back."""

from __future__ import annotations

import collections
import random
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.acting.sandbox import map_tensors, stand_ins, tensors_of
from lowtide.errors import TraceError
from tests.outcome import bits


class Pair(NamedTuple):
    a: Tensor
    b: Any


@dataclass
class Record:
    t: Tensor
    n: int = 3


def test_tensors_are_mapped_in_any_container_and_the_rest_stays() -> None:
    t = torch.ones(2)
    tree = {"a": [t, 1, None], "b": (Pair(t, "x"), Record(t)), "c": collections.OrderedDict(z=t)}
    out = map_tensors(tree, lambda s: s + 1)
    assert out["a"][0].tolist() == [2.0, 2.0]
    assert out["a"][1:] == [1, None]
    assert isinstance(out["b"][0], Pair)
    assert out["b"][0].b == "x"
    assert out["b"][1].n == 3
    assert isinstance(out["c"], collections.OrderedDict)
    assert tree["a"][0] is t  # pyright: ignore
    assert tensors_of(tree) == [t]


class Stateful(nn.Module):
    """Changes all it can reach in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("seen", torch.zeros(4))
        self.counter, self.flags = 0, {"a": 1}
        self.list: list[Any] = [1, 2]
        self.nested = {"deep": [{"x": collections.deque([1, 2], maxlen=3)}]}
        self.set = {1}
        self.cache = Cache()
        self.plain = torch.zeros(3)
        self.rng = np.random.RandomState(0)

    def forward(self, x: Tensor) -> Tensor:
        self.counter += 1
        self.flags["a"] += 1
        self.flags["new"] = 2
        self.list.append(x)
        self.list[0] = "changed"
        self.nested["deep"][0]["x"].append(self.counter)
        self.set.add(self.counter)
        self.cache.entries[self.counter] = x
        self.cache.hits += 1
        self.added = x
        self.seen = self.seen + 1
        self.training = True
        self.f.weight.requires_grad_(False).requires_grad_(True)
        random.random()
        np.random.rand()
        return self.norm(self.f(x + torch.rand(1))).tanh()


class Cache:
    def __init__(self) -> None:
        self.entries: dict[int, Any] = {}
        self.hits = 0


def state_of(m: Stateful) -> list[Any]:
    return [
        m.counter, dict(m.flags), list(m.list), [list(d["x"]) for d in m.nested["deep"]], set(m.set),
        dict(m.cache.entries), m.cache.hits, hasattr(m, "added"), m.training,
        [(n, bits(t), t.requires_grad, t.grad is None) for n, t in m.named_parameters()],
        [(n, bits(t)) for n, t in m.named_buffers()], bits(m.plain),
        random.getstate(), np.random.get_state()[1].tobytes(), bits(torch.get_rng_state()),  # pyright: ignore
    ]  # fmt: skip


def test_tracing_leaves_everything_as_it_was() -> None:
    model = Stateful()
    identities = [id(t) for t in (*model.parameters(), *model.buffers())]
    x = torch.randn(3, 4)
    before = state_of(model)
    hooks = len(nn.modules.module._global_forward_hooks), len(nn.modules.module._global_forward_pre_hooks)
    lowtide.trace(model, (x,), optimizer="adam")
    assert state_of(model) == before
    assert [id(t) for t in (*model.parameters(), *model.buffers())] == identities
    assert (len(nn.modules.module._global_forward_hooks), len(nn.modules.module._global_forward_pre_hooks)) == hooks


def test_a_trace_that_fails_leaves_everything_as_it_was() -> None:
    class Fails(Stateful):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise ValueError("on purpose")

    model, x = Fails(), torch.randn(3, 4)
    before = state_of(model)
    with pytest.raises(TraceError, match="on purpose"):
        lowtide.trace(model, (x,))
    assert state_of(model) == before
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def test_gradients_that_are_there_stay() -> None:
    model = Stateful()
    model.f.weight.grad = torch.full((4, 4), 2.0)
    kept = model.f.weight.grad
    x = torch.randn(3, 4, requires_grad=True)
    x.grad = torch.ones(3, 4)
    lowtide.trace(model, (x,), optimizer=torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9))
    assert model.f.weight.grad is kept
    assert kept.tolist() == [[2.0] * 4] * 4
    assert x.grad.tolist() == [[1.0] * 4] * 3


def test_tied_parameters_and_views_stay_tied() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    buffer = torch.zeros(8)
    model.register_buffer("left", buffer[:4])
    model.register_buffer("right", buffer[4:])
    with stand_ins(model, lambda t: t.detach().clone()) as table:
        assert model[1].weight is model[0].weight
        assert model[0].weight is not None
        assert len(table) == 5
    step = lowtide.trace(model, (torch.randn(2, 4),))
    standing = [s for s in step.storages if s.birth < 0]
    assert sorted(s.nbytes for s in standing) == sorted([64, 16, 16, 32, 32])


def test_an_optimizer_of_the_user_is_not_touched() -> None:
    model = Stateful()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    before = [(bits(v) if isinstance(v, Tensor) else v) for s in optimizer.state.values() for v in s.values()]
    params = [p for g in optimizer.param_groups for p in g["params"]]
    lowtide.trace(model, (torch.randn(3, 4),), optimizer=optimizer)
    assert [(bits(v) if isinstance(v, Tensor) else v) for s in optimizer.state.values() for v in s.values()] == before
    assert all(p is q for g in optimizer.param_groups for p, q in zip(params, g["params"], strict=True))
