"""`torchvision:NAME`."""

from __future__ import annotations

import inspect
from typing import Any

from torchvision import models

from lowtide.errors import InputError
from lowtide.models.build import build
from lowtide.models.errors import building
from lowtide.models.inputs import InputSpec
from lowtide.models.loaded import LoadedModel, smallest_vocabulary
from lowtide.models.suggest import suggest


def load(name: str, settings: dict[str, Any], device: str, seed: int) -> LoadedModel:
    """The torchvision model `name` without weights, also without a pretrained backbone.

    Raises:
        InputError: if torchvision has no such model or does not take the settings.
    """
    known = models.list_models()
    if name not in known:
        raise InputError(f"torchvision has no model {name!r}{suggest(name, known)}")
    options: dict[str, Any] = {"weights": None}
    if "weights_backbone" in inspect.signature(models.get_model_builder(name)).parameters:
        options["weights_backbone"] = None
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = device != "meta"  # left out, they warn about the time that it takes
    for key in settings:
        if key.startswith("weights") and settings[key] is not None:
            raise InputError(f"{key}={settings[key]} would download weights; Lowtide takes random ones")
    with building(f"torchvision:{name}", settings):
        model = build(lambda: models.get_model(name, **(options | settings)), device=device, seed=seed)
    size = 299 if name == "inception_v3" else 224
    shape = (2, 3, 16, 112, 112) if name in models.list_models(models.video) else (8, 3, size, size)
    return LoadedModel(model, name, (InputSpec(shape),), vocabulary=smallest_vocabulary(model))
