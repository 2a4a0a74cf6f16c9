"""`load_model`: a model by its name."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from torch.nn.parameter import is_lazy

from lowtide.errors import InputError
from lowtide.models.inputs import parse_dtype
from lowtide.models.loaded import LoadedModel

# Module that loads it, package that it needs, extra that installs the package.
SOURCES: dict[str, tuple[str, str, str]] = {
    "torchvision": ("lowtide.models.from_torchvision", "torchvision", "vision"),
    "timm": ("lowtide.models.from_timm", "timm", "timm"),
    "hf": ("lowtide.models.from_hf", "transformers", "hf"),
}


def load_model(
    spec: str,
    set: Mapping[str, Any] | None = None,
    device: str = "meta",
    dtype: str | None = None,
    seed: int = 0,
) -> LoadedModel:
    """The model that `spec` names, with random weights, in training mode. Nothing is downloaded.

    Args:
        spec: `torchvision:NAME`, `timm:NAME`, `hf:NAME` (a model type, configuration class or model class of
            transformers) or `path/to/file.py:factory`.
        set: settings for the constructor, the configuration (`hf:`) or the factory.
        device: `meta`, where parameters take no memory, or `cpu`.
        dtype: type of the floating point parameters and inputs, None for the model's own.
        seed: of the random weights.

    Raises:
        InputError: if there is no such model, its package is not installed, or it cannot be built so.
    """
    if device not in ("meta", "cpu"):
        raise InputError(f"a model is built on 'meta' or 'cpu', not on {device!r}")
    wanted = parse_dtype(dtype) if dtype else None
    if wanted is not None and not wanted.is_floating_point:
        raise InputError(f"a model's parameters cannot be of type {dtype!r}: take a floating point type")
    settings = dict(set or {})
    source, name = _split(spec)
    loaded = _loader(source)(name, settings, device, seed)
    model = loaded.model.train()
    lazy = next((n for n, p in model.named_parameters() if is_lazy(p)), None)
    if lazy is not None:
        raise InputError(f"{spec}: the shape of {lazy} is not known yet: run the model on a batch before returning it")
    if wanted is not None:
        model = model.to(wanted)
    return dataclasses.replace(loaded, model=model, name=_title(spec, settings), device=device)


def _split(spec: str) -> tuple[str, str]:
    source, colon, name = spec.partition(":")
    if colon and source in SOURCES:
        if not name:
            raise InputError(f"{spec!r} names no model: write for example {_EXAMPLES[source]}")
        return source, name
    path, colon, name = spec.rpartition(":")
    if colon and path.endswith(".py"):
        return "file", spec
    raise InputError(
        f"{spec!r} is not a model: write {', '.join(f'{s}:NAME' for s in SOURCES)} or path/to/file.py:factory"
    )


_EXAMPLES = {"torchvision": "torchvision:resnet50", "timm": "timm:vit_tiny_patch16_224", "hf": "hf:gpt2"}


def _loader(source: str) -> Callable[[str, dict[str, Any], str, int], LoadedModel]:
    if source == "file":
        return importlib.import_module("lowtide.models.from_file").load
    module, package, extra = SOURCES[source]
    try:
        importlib.import_module(package)
    except ImportError as e:
        raise InputError(
            f"models of {source}: need the package {package}: install it with pip install 'lowtide[{extra}]' ({e})"
        ) from e
    return importlib.import_module(module).load


def _title(spec: str, settings: Mapping[str, Any]) -> str:
    return f"{spec}({', '.join(f'{k}={v}' for k, v in settings.items())})" if settings else spec
