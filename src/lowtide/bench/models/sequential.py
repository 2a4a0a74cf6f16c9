"""torchvision's networks as an `nn.Sequential` that computes the same: what `torch.utils.checkpoint` can cut."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


class Dense(nn.Module):
    """A DenseNet layer that appends its features to its input. torchvision's own hands a list of all features from
    layer to layer: then no tensor between two layers holds all that is known. Its parts are called one by one, since
    its own forward would copy its input first."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for part in self.layer.children():
            y = part(y)
        return torch.cat([x, y], 1)


def sequential(name: str) -> nn.Sequential:
    """The torchvision network `name` (AlexNet, VGG, ResNet, DenseNet, Inception v3 without its auxiliary head) as a row
    of stages, in training mode with dropout off."""
    import torchvision

    options: dict[str, Any] = {"aux_logits": False, "init_weights": False} if name == "inception_v3" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model: Any = getattr(torchvision.models, name)(weights=None, **options)
    stages = nn.Sequential(*_stages(name, model)).train()
    dropout_off(stages)
    return stages


def dropout_off(model: nn.Module) -> nn.Module:
    """`model` itself, its dropout layers in evaluation mode."""
    for m in model.modules():
        if isinstance(m, nn.Dropout):
            m.eval()
    return model


def _stages(name: str, model: Any) -> list[nn.Module]:
    if name.startswith("resnet"):
        body = [model.layer1, model.layer2, model.layer3, model.layer4]
        return _flat([model.conv1, model.bn1, model.relu, model.maxpool, *body, model.avgpool, nn.Flatten(), model.fc])
    if name.startswith("densenet"):
        out: list[nn.Module] = []
        for m in model.features:
            if type(m).__name__ == "_DenseBlock":
                out += [Dense(layer) for layer in m.values()]
            else:
                out += list(m) if type(m).__name__ == "_Transition" else [m]
        return [*out, nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), model.classifier]
    if name == "inception_v3":
        parts = [m for m in model.children() if m is not model.fc]
        return [*parts, nn.Flatten(), model.fc]
    return _flat([model.features, model.avgpool, nn.Flatten(), model.classifier])


def _flat(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """Plain `nn.Sequential`s taken apart, all the way down."""
    out: list[nn.Module] = []
    for m in modules:
        out += _flat(m) if type(m) is nn.Sequential else [m]
    return out
