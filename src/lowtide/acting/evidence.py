"""What a training step leaves behind, copied out as bits, and where two such records differ.

The copies are NumPy arrays, so that taking them inside a measured step does not count as memory of the step."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

_BY_ITEMSIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Bits:
    """The content of a tensor: `raw` has its shape (complex128: one dimension more) and an integer type."""

    raw: NDArray[Any]
    dtype: torch.dtype
    shape: tuple[int, ...]

    @staticmethod
    def of(t: Tensor) -> Bits:
        """Copy a tensor of any device out of torch's memory."""
        plain = t.detach()
        if plain.layout != torch.strided:
            plain = plain.to_dense()
        plain = plain.resolve_conj().resolve_neg().cpu()
        shape = tuple(plain.shape)
        if plain.dtype == torch.complex128:
            plain = torch.view_as_real(plain)
        raw = plain.view(_BY_ITEMSIZE[plain.dtype.itemsize]).numpy()
        return Bits(np.array(raw, copy=True), t.dtype, shape)

    def values(self) -> Tensor:
        """As a tensor, for looking at how far two of them are apart."""
        flat = torch.as_tensor(np.ascontiguousarray(self.raw).reshape(-1))
        return flat.view(self.dtype)

    def same(self, other: Bits) -> bool:
        """To the bit: NaNs with one payload are equal, 0.0 and -0.0 are not."""
        return self.dtype == other.dtype and self.shape == other.shape and np.array_equal(self.raw, other.raw)

    def distance(self, other: Bits) -> float:
        """Largest absolute difference; infinite if shapes, types, or the places of infinities and NaNs differ."""
        if self.dtype != other.dtype or self.shape != other.shape:
            return math.inf
        a, b = _as_double(self.values()), _as_double(other.values())
        odd = ~(torch.isfinite(a) & torch.isfinite(b))
        if not torch.equal(torch.nan_to_num(a[odd], 0.5), torch.nan_to_num(b[odd], 0.5)):
            return math.inf
        apart = (a[~odd] - b[~odd]).abs()
        return float(apart.max()) if apart.numel() else 0.0

    def scale(self) -> float:
        """Largest finite absolute value."""
        v = _as_double(self.values()).abs()
        v = v[torch.isfinite(v)]
        return float(v.max()) if v.numel() else 0.0

    @property
    def is_float(self) -> bool:
        return self.dtype.is_floating_point or self.dtype.is_complex


def _as_double(t: Tensor) -> Tensor:
    return torch.view_as_real(t).double() if t.is_complex() else t.double()


# What a step left under one name: a tensor's bits, something plain (numbers, states of generators), or None.
Content = Bits | bool | int | float | str | bytes | None


@dataclass(frozen=True)
class Item:
    """One thing to compare. `module` is the path of the module it belongs to ('' for the model itself), or None."""

    kind: str
    name: str
    module: str | None
    content: Content


def outputs(output: Any) -> list[Item]:
    """Every tensor in a model's output."""
    return [Item("output", name or "output", None, Bits.of(t)) for name, t in _tensors(output)]


def after_step(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Item]:
    """What the step left behind in the model, its inputs and the random generators: in the order in which a step
    makes it, so that the first difference is the one to look at. Gradients come in backward's order."""
    found: list[Item] = []
    gradients: list[Item] = []
    parameters: list[Item] = []
    seen: set[int] = set()
    modules: dict[str, nn.Module] = dict(model.named_modules())  # pyright: ignore[reportUnknownArgumentType]
    for path, module in modules.items():
        found += (
            Item("buffer", _join(path, name), path, Bits.of(b)) for name, b in module.named_buffers(recurse=False)
        )
        found += _attributes(path, module)
        for name, p in module.named_parameters(recurse=False):
            if id(p) not in seen:  # tied ones go by their first name
                seen.add(id(p))
                parameters.append(Item("parameter", _join(path, name), path, Bits.of(p)))
                gradients.append(Item("gradient", _join(path, name), path, _gradient(p)))
    gradients.reverse()
    inputs = [(f"args{name}", t) for name, t in _tensors(tuple(args))]
    inputs += [(key + name, t) for key, value in kwargs.items() for name, t in _tensors(value)]
    for name, t in inputs:
        found.append(Item("input", name, None, Bits.of(t)))
        if t.is_leaf and t.requires_grad:
            gradients.append(Item("input gradient", name, None, _gradient(t)))
    return [*found, *gradients, *parameters, *_generators()]


def _gradient(t: Tensor) -> Bits | None:
    return None if t.grad is None else Bits.of(t.grad)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _generators() -> Iterator[Item]:
    yield Item("random generator", "torch", None, Bits.of(torch.get_rng_state()))
    if torch.cuda.is_initialized():
        for i, state in enumerate(torch.cuda.get_rng_state_all()):
            yield Item("random generator", f"torch, cuda:{i}", None, Bits.of(state))
    yield Item("random generator", "Python's random", None, repr(random.getstate()))
    kind, keys, *rest = cast("tuple[str, NDArray[Any], int, int, float]", np.random.get_state(legacy=True))
    yield Item("random generator", "NumPy", None, f"{kind} {keys.tobytes().hex()} {rest}")


_INTERNAL = frozenset({"_parameters", "_buffers", "_modules"})


def _attributes(path: str, module: nn.Module) -> Iterator[Item]:
    """Tensors and numbers that a module keeps in plain attributes, containers included."""
    for key, value in module.__dict__.items():
        if key in _INTERNAL or key.endswith("_hooks"):
            continue
        for name, found in _leaves(value, 0):
            if isinstance(found, nn.Parameter):  # listed under its own name
                continue
            content = Bits.of(found) if isinstance(found, Tensor) else found
            yield Item("attribute", f"{_join(path, key)}{name}", path, content)


def _leaves(obj: Any, depth: int) -> Iterator[tuple[str, Tensor | bool | int | float]]:
    if isinstance(obj, (Tensor, bool, int, float)):
        yield "", obj
    elif depth < 6:
        for step, part in _parts(obj):
            for name, leaf in _leaves(part, depth + 1):
                yield step + name, leaf


def _tensors(obj: Any) -> list[tuple[str, Tensor]]:
    return [(name, leaf) for name, leaf in _leaves(obj, 0) if isinstance(leaf, Tensor)]


def _parts(obj: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(obj, Mapping):
        yield from ((f"[{k!r}]", v) for k, v in obj.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    elif isinstance(obj, (list, tuple)):
        yield from ((f"[{i}]", v) for i, v in enumerate(obj))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    elif dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        yield from ((f".{f.name}", getattr(obj, f.name)) for f in dataclasses.fields(obj))
