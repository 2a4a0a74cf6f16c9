"""`path/to/file.py:factory`: a model of the user's own."""

from __future__ import annotations

import importlib.util
import sys
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
    if isinstance(made, nn.Module):
        return LoadedModel(made, spec, vocabulary=smallest_vocabulary(made))
    if not isinstance(made, (tuple, list)) or len(made) not in (2, 3) or not isinstance(made[0], nn.Module):
        raise InputError(
            f"{spec} returned {_shape_of(made)}: a factory returns a model, (model, args) or (model, args, loss)"
        )
    model, args, loss = made[0], made[1], made[2] if len(made) == 3 else None
    if loss is not None and not callable(loss):
        raise InputError(f"{spec} returned a loss of type {type(loss).__name__}: a loss is a function of the output")
    kwargs = dict(args) if isinstance(args, dict) else {}
    positional = () if isinstance(args, dict) else tuple(args) if isinstance(args, (tuple, list)) else (args,)
    return LoadedModel(model, spec, loss=loss, args=positional, kwargs=kwargs, vocabulary=smallest_vocabulary(model))


def _shape_of(made: Any) -> str:
    if isinstance(made, (tuple, list)):
        return f"({', '.join(type(m).__name__ for m in made)})"
    return f"an object of type {type(made).__name__}"
