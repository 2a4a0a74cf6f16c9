"""`timm:NAME`."""

from __future__ import annotations

from typing import Any

import timm

from lowtide.errors import InputError
from lowtide.models.build import build
from lowtide.models.errors import building
from lowtide.models.inputs import InputSpec
from lowtide.models.loaded import LoadedModel, smallest_vocabulary
from lowtide.models.suggest import suggest


def load(name: str, settings: dict[str, Any], device: str, seed: int) -> LoadedModel:
    """The timm model `name` without weights.

    Raises:
        InputError: if timm has no such model or does not take the settings.
    """
    if not timm.is_model(name):
        raise InputError(f"timm has no model {name!r}{suggest(name, timm.list_models())}")
    if settings.get("pretrained"):
        raise InputError("pretrained=True would download weights; Lowtide takes random ones")
    options: dict[str, Any] = {"pretrained": False, **settings}
    with building(f"timm:{name}", settings):
        model = build(lambda: timm.create_model(name, **options), device=device, seed=seed)
    size: tuple[int, ...] = tuple(getattr(model, "pretrained_cfg", {}).get("input_size", (3, 224, 224)))
    if "img_size" in settings:
        side: Any = settings["img_size"]
        sides: tuple[int, ...] = (side, side) if isinstance(side, int) else tuple(side)
        size = (size[0], *sides)
    if "in_chans" in settings:
        size = (settings["in_chans"], *size[1:])
    return LoadedModel(model, name, (InputSpec((8, *size)),), vocabulary=smallest_vocabulary(model))
