"""The networks of the comparison under a budget. FP32, images of 224 x 224, dropout off, every `.grad` allocated; the
input requires a gradient where it can."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.gpt import GPT
from lowtide.acting.loss import scalar_loss
from tests.networks import Network


def image_net(name: str, batch: int) -> Network:
    """A torchvision model on `meta`."""
    import torchvision

    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model: nn.Module = getattr(torchvision.models, name)(weights=None).train()
        x = torch.empty(batch, 3, 224, 224, requires_grad=True)
    return _ready(Network(model, (x,)))


def gpt(batch: int, length: int = 512) -> Network:
    """GPT-2's shape, 12 layers of width 768, on `meta`."""
    with torch.device("meta"):
        model, ids = GPT().train(), torch.zeros(batch, length, dtype=torch.int64)
    return _ready(Network(model, (ids,)))


NETS: dict[str, Callable[[], Network]] = {
    "resnet50": lambda: image_net("resnet50", 64),
    "vgg16": lambda: image_net("vgg16", 64),
    "densenet121": lambda: image_net("densenet121", 32),
    "vit_b_16": lambda: image_net("vit_b_16", 64),
    "gpt": lambda: gpt(4),
}

# What attention does on `meta` is not what it does on the CPU: these are run on fake CPU tensors only.
ATTENTION = ("vit_b_16", "gpt")


def on_cpu(network: Network) -> Network:
    """The same network with its tensors on the CPU, without content; inside a `FakeTensorMode` they are fake."""
    originals = [*network.model.parameters(), *network.model.buffers()]
    empty = [torch.empty(t.shape, dtype=t.dtype) for t in originals]
    new = {id(t): nn.Parameter(e) if isinstance(t, nn.Parameter) else e for t, e in zip(originals, empty, strict=True)}
    for m in network.model.modules():
        for store in (m._parameters, m._buffers):
            store.update({name: new[id(t)] for name, t in store.items() if t is not None})  # pyright: ignore
    args = [torch.empty(t.shape, dtype=t.dtype, requires_grad=t.requires_grad) for t in network.args]
    made = Network(network.model, tuple(args))
    _give_gradients(made)
    return made


def loss_of(network: Network, forward: Callable[[], Any] | None = None) -> Tensor:
    """Forward and loss."""
    out = forward() if forward is not None else network.model(*network.args, **network.kwargs)
    return scalar_loss(out, network.loss)


def _ready(network: Network) -> Network:
    for m in network.model.modules():
        if isinstance(m, nn.Dropout):
            m.eval()
    _give_gradients(network)
    return network


def _give_gradients(network: Network) -> None:
    for t in [*network.model.parameters(), *network.args]:
        t.grad = torch.empty_like(t) if t.requires_grad else None
