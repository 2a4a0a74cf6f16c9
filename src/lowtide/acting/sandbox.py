"""Run a user's model on other tensors and leave no trace of it: stand-ins for parameters, buffers and inputs, and
everything that Python code may have changed put back afterwards."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import random
import sys
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import Tensor, nn

Convert = Callable[[Tensor], Tensor]


def map_tensors(obj: Any, convert: Convert) -> Any:
    """A copy of nested dicts, lists, tuples, named tuples and dataclasses with every tensor converted. Other objects
    are passed on as they are."""
    if isinstance(obj, Tensor):
        return convert(obj)
    if isinstance(obj, dict):
        items = {k: map_tensors(v, convert) for k, v in obj.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        try:
            new = obj.copy()  # keeps the type: OrderedDict, ModelOutput, BatchEncoding's data
            for k, v in items.items():
                new[k] = v
        except Exception:  # a mapping with rules of its own: a plain dict serves
            return items
        return new
    if isinstance(obj, tuple):
        parts = [map_tensors(v, convert) for v in obj]  # pyright: ignore[reportUnknownVariableType]
        return type(obj)(*parts) if hasattr(obj, "_fields") else tuple(parts)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(obj, list):
        return [map_tensors(v, convert) for v in obj]  # pyright: ignore[reportUnknownVariableType]
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        changed = {f.name: map_tensors(getattr(obj, f.name), convert) for f in dataclasses.fields(obj) if f.init}
        return dataclasses.replace(obj, **changed)
    return obj


def tensors_of(obj: Any) -> list[Tensor]:
    """Every tensor in nested containers, in order, each once."""
    found: dict[int, Tensor] = {}

    def visit(t: Tensor) -> Tensor:
        found.setdefault(id(t), t)
        return t

    map_tensors(obj, visit)
    return list(found.values())


_CONTAINERS = (list, dict, set, collections.deque)


class _Snapshot:
    """What module attributes and the containers and plain objects they reach hold, to be put back in place."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._undo: list[Callable[[], None]] = []
        self.keep_alive: list[Any] = []

    def take(self, obj: Any, depth: int = 0) -> None:
        if id(obj) in self._seen or depth > 8:
            return
        if isinstance(obj, _CONTAINERS):
            self._seen.add(id(obj))
            self.keep_alive.append(obj)
            content = obj.copy()
            self._undo.append(lambda: _refill(obj, content))
            for v in list(content.values()) if isinstance(content, dict) else list(content):
                self.take(v, depth + 1)
        elif isinstance(obj, tuple):
            for v in obj:  # pyright: ignore[reportUnknownVariableType]
                self.take(v, depth + 1)
        elif isinstance(obj, nn.Module):
            self.module(obj)
        elif _has_plain_state(obj):
            self._seen.add(id(obj))
            self.keep_alive.append(obj)
            self._attributes(obj, depth)

    def module(self, module: nn.Module) -> None:
        if id(module) in self._seen:
            return
        self._seen.add(id(module))
        self.keep_alive.append(module)
        self._attributes(module, 0)

    def _attributes(self, obj: Any, depth: int) -> None:
        before = dict(obj.__dict__)

        def undo() -> None:
            for k in [k for k in obj.__dict__ if k not in before]:
                del obj.__dict__[k]
            obj.__dict__.update(before)

        self._undo.append(undo)
        for v in before.values():
            self.take(v, depth + 1)

    def restore(self) -> None:
        for undo in reversed(self._undo):
            undo()


def _has_plain_state(obj: Any) -> bool:
    """Objects of Python classes with a `__dict__`: caches, counters, configs. Not classes, functions, tensors, or
    what belongs to torch itself (optimizers, streams, generators)."""
    if isinstance(obj, (type, Tensor, torch.Generator)) or not hasattr(obj, "__dict__"):
        return False
    owner = type(obj).__module__.partition(".")[0]
    return owner not in {
        "torch",
        "lowtide",
        "builtins",
        "functools",
        "types",
        "typing",
        "threading",
        "logging",
        "collections",
    }


def _refill(container: Any, content: Any) -> None:
    if isinstance(container, (list, collections.deque)):
        container.clear()
        container.extend(content)
    else:
        container.clear()
        container.update(content)


def _substitute(obj: Any, stand_in: dict[int, Tensor], seen: set[int], depth: int = 0) -> None:
    """Replace tensors that have a stand-in inside containers: `nn.LSTM._flat_weights` lists its parameters again."""
    if depth > 4 or id(obj) in seen:
        return
    seen.add(id(obj))
    if isinstance(obj, list):
        items = list(enumerate(obj))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    elif isinstance(obj, dict):
        items = list(obj.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    else:
        return
    for k, v in items:
        if isinstance(v, Tensor):
            if id(v) in stand_in:
                obj[k] = stand_in[id(v)]
        else:
            _substitute(v, stand_in, seen, depth + 1)


@contextlib.contextmanager
def preserved_rng() -> Generator[None]:
    """Leave Python's, NumPy's (if it is loaded) and torch's generators where they were."""
    python = random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state: Any = numpy.random.get_state() if numpy is not None else None
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(numpy_state)


@contextlib.contextmanager
def stand_ins(model: nn.Module, convert: Convert) -> Generator[dict[int, Tensor]]:
    """Inside, the model's parameters and buffers are what `convert` makes of them (tied ones stay tied); after it,
    every attribute of every module, and every list, dict, set and plain object those reach, is as before, down to
    `.grad` fields and random generators. Yields id(original) -> stand-in."""
    snapshot = _Snapshot()
    modules = list(model.modules())
    for m in modules:
        snapshot.module(m)
    originals = [*model.parameters(), *model.buffers()]
    grads = [(p, p.grad) for p in originals if p.is_leaf]
    table: dict[int, Tensor] = {}
    with preserved_rng():
        try:
            for t in originals:
                if id(t) not in table:
                    table[id(t)] = convert(t)
            seen: set[int] = set()
            for m in modules:
                stores: tuple[dict[str, Any], ...] = (m._parameters, m._buffers)
                for store in stores:
                    for name, t in store.items():
                        if t is not None:
                            store[name] = table[id(t)]  # pyright: ignore[reportArgumentType]
                for value in list(m.__dict__.values()):
                    _substitute(value, table, seen)
                for name, value in list(m.__dict__.items()):
                    if isinstance(value, Tensor) and id(value) in table:
                        m.__dict__[name] = table[id(value)]
            yield table
        finally:
            snapshot.restore()
            for p, g in grads:
                if p.grad is not g:
                    p.grad = g
