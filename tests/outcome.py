"""What a training step leaves behind, as bits, told without the library's own comparison."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lowtide.acting.sandbox import tensors_of

# name -> None, or bits with dtype and shape
Outcome = dict[str, Any]


def bits(t: Any) -> Any:
    """A tensor's dtype, shape and bytes; anything else as it is."""
    if not isinstance(t, Tensor):
        return t
    plain = t.detach()
    if plain.layout != torch.strided:
        plain = plain.to_dense()
    plain = plain.resolve_conj().resolve_neg().cpu().contiguous()
    raw = plain.reshape(-1).view(torch.uint8)
    return str(t.dtype), str(t.layout), tuple(t.shape), raw.numpy().tobytes()


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def generators() -> Outcome:
    kind, keys, *rest = np.random.get_state()
    return {
        "rng torch": bits(torch.get_rng_state()),
        "rng python": random.getstate(),
        "rng numpy": (kind, keys.tobytes(), *rest),
    }


def outcome_of(model: nn.Module, args: Any, losses: Iterable[Tensor] = (), state: Iterable[Any] = ()) -> Outcome:
    """Losses, gradients and their None-ness, gradients and contents of inputs, buffers, parameters, state, RNG."""
    found: Outcome = {f"loss {i}": bits(loss) for i, loss in enumerate(losses)}
    for name, p in model.named_parameters():
        found[f"grad {name}"] = bits(p.grad)
        found[f"parameter {name}"] = bits(p)
    for name, b in model.named_buffers():
        found[f"buffer {name}"] = bits(b)
    for i, t in enumerate(tensors_of(args)):
        found[f"input {i}"] = bits(t)
        if t.is_leaf:
            found[f"input grad {i}"] = bits(t.grad)
    for i, s in enumerate(state):
        found[f"state {i}"] = bits(s)
    return found | generators()


def differences(a: Outcome, b: Outcome) -> list[str]:
    """Names under which the two differ."""
    return [k for k in dict.fromkeys([*a, *b]) if a.get(k, "missing") != b.get(k, "missing")]


def train(
    model: nn.Module,
    args: Any,
    losses: Callable[[Any], list[Tensor]],
    region: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    state: Callable[[], Iterable[Any]] = list,
    steps: int = 2,
    seed: int = 5,
    lr: float = 0.05,
) -> Outcome:
    """`steps` steps of SGD, forward and loss inside `region()`, each loss run backward on its own (`retain_graph` on
    all but the last), and what every step left behind."""
    seed_all(seed)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.is_leaf], lr=lr)
    found: Outcome = {}
    for k in range(steps):
        optimizer.zero_grad()
        for t in tensors_of(args):
            t.grad = None if t.is_leaf else t.grad
        with region():
            parts = losses(model(*args))
        for i, loss in enumerate(parts):
            loss.backward(retain_graph=i + 1 < len(parts))
        found |= {f"step {k} {name}": v for name, v in outcome_of(model, args, parts, state()).items()}
        del parts
        optimizer.step()
    return found
