"""Two processes: data-parallel and sharded training under a plan give the plain gradients, to the bit."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

import lowtide
from lowtide.planning.plan import Plan
from tests.outcome import bits
from tests.plans import drop_everything, drop_within, random_plan

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="no gloo")


class Net(nn.Module):
    def __init__(self, d: int = 8, depth: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * d, d))
            for _ in range(depth)
        )
        self.norm = nn.BatchNorm1d(d)

    def forward(self, x: Tensor) -> Tensor:
        for b in self.blocks:
            x = x + torch.tanh(b(x))
        return self.norm(x).sigmoid()


def block_of(path: str) -> str:
    return ".".join(path.split(".")[:2]) if path.startswith("blocks.") else ""


class Count(TorchDispatchMode):
    n = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.n += func in (torch.ops.aten.addmm.default, torch.ops.aten.gelu.default)
        return func(*args, **(kwargs or {}))


def full(t: Any) -> Any:
    t = t.grad
    return None if t is None else bits(t.full_tensor() if hasattr(t, "full_tensor") else t)


def train(rank: int, shard: bool, plan: Plan | None, enter: str, twice: bool) -> tuple[list[Any], int]:
    """Gradients and buffers of two steps, and how many matmuls and GELUs backward ran."""
    torch.manual_seed(0)
    model = Net()
    if shard:
        for b in model.blocks:
            fully_shard(b)
        fully_shard(model)
        wrapped: nn.Module = model
    else:
        wrapped = DistributedDataParallel(model)
    if plan is not None and enter == "apply":
        lowtide.apply(model, plan)
    torch.manual_seed(10 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found: list[Any] = []
    count = Count()
    for _ in range(2):
        x = torch.randn(6, 8)
        if plan is not None and enter == "remat":
            with lowtide.remat(plan):
                loss = wrapped(x).square().sum()
        else:
            loss = wrapped(x).square().sum()
        with count:
            if twice:
                loss.backward(retain_graph=True)
            loss.backward()
        found += [bits(loss), *(full(p) for p in model.parameters()), *(bits(b) for b in model.buffers())]
        optimizer.step()
        optimizer.zero_grad()
    return found, count.n


def work(rank: int, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(3)
    step = lowtide.trace(Net(), (torch.randn(6, 8),), loss=lambda y: y.square().sum())
    dist.init_process_group("gloo", rank=rank, world_size=2)
    try:
        makers: list[Callable[[Any], Plan]] = [
            drop_everything,
            lambda s: drop_within(s, block_of),
            lambda s: random_plan(s, 1),
            lambda s: random_plan(s, 2),
        ]
        for shard in (False, True):
            for twice in (False, True):
                plain, ran = train(rank, shard, None, "", twice)
                assert ran == 0
                for maker in makers:
                    plan = maker(step)
                    for enter in ("apply", "remat"):
                        found, ran = train(rank, shard, plan, enter, twice)
                        assert found == plain, f"{plan.solver}, {enter}, sharded: {shard}, twice: {twice}"
                        # Units are known under `apply`: what stays inside them is recomputed with their parameters.
                        if plan.solver == "drop within units" and not twice and (enter == "apply" or not shard):
                            assert ran == 2 * sum(
                                step.ops[o].name in ("aten.addmm.default", "aten.gelu.default")
                                for ops in plan.runs.values()
                                for o in ops
                            )
    finally:
        dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_two_processes() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(work, (port,), nprocs=2)  # pyright: ignore
