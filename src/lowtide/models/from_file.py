"""`path/to/file.py:factory`: a model of the user's own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from lowtide.errors import InputError
from lowtide.models.build import build
from lowtide.models.errors import building, first_line
from lowtide.models.loaded import LoadedModel, smallest_vocabulary
from lowtide.models.suggest import suggest


def load(spec: str, settings: dict[str, Any], device: str, seed: int) -> LoadedModel:
    """What `factory(**settings)` in the file returns: a model, `(model, args)` or `(model, args, loss)`. `args` is a
    tuple or list of arguments, a dict of keyword arguments, or a single tensor; `loss` takes the output.

    Raises:
        InputError: if the file cannot be read or run, has no such factory, or the factory fails or returns
            something else.
    """
    path, _, name = spec.rpartition(":")
    module = _run_file(Path(path))
    factory = getattr(module, name, None)
    if not callable(factory):
        known = [k for k, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
        fallback = f"; it has {', '.join(known)}" if known else ""
        raise InputError(f"{path} has no function {name!r}{suggest(name, known, fallback)}")
    if isinstance(factory, nn.Module):  # a ready model is callable, but not a factory
        raise InputError(f"{name!r} in {path} is a model: Lowtide needs a function that makes it")
    with building(spec, settings):
        made = build(lambda: factory(**settings), device=device, seed=seed)
    return _unpack(made, spec)


def _run_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}")
    module_spec = importlib.util.spec_from_file_location(f"_lowtide_model_{path.stem}", path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module.__name__] = module  # dataclasses in the file look themselves up there
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)  # the file may import its neighbours
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as e:
        at = f", line {e.lineno}" if isinstance(e, SyntaxError) else ""
        raise InputError(f"{str(path)!r} cannot be run{at}: {first_line(e)}") from e
    finally:
        sys.path.remove(folder)
    return module


def _unpack(made: Any, spec: str) -> LoadedModel:
    parts: list[Any] = list(made) if isinstance(made, (tuple, list)) else [made]  # pyright: ignore[reportUnknownArgumentType]
    if not 1 <= len(parts) <= 3 or not isinstance(parts[0], nn.Module):
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise InputError(f"{spec} returned ({kinds}): a factory returns a model, (model, args) or (model, args, loss)")
    model: nn.Module = parts[0]
    loss: Callable[[Any], Any] | None = parts[2] if len(parts) == 3 else None
    if not (loss is None or callable(loss)):
        raise InputError(f"{spec} returned a loss of type {type(loss).__name__}: a loss is a function of the output")
    vocabulary = smallest_vocabulary(model)
    if len(parts) == 1:
        return LoadedModel(model, spec, vocabulary=vocabulary)
    positional, keyword = _arguments(parts[1])
    return LoadedModel(model, spec, loss=loss, args=positional, kwargs=keyword, vocabulary=vocabulary)


def _arguments(args: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(args, dict):
        return (), dict(args)  # pyright: ignore[reportUnknownArgumentType]
    positional: list[Any] = list(args) if isinstance(args, (tuple, list)) else [args]  # pyright: ignore[reportUnknownArgumentType]
    return tuple(positional), {}
