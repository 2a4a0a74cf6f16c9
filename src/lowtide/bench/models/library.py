"""Networks that torchvision and timm build, without weights. The packages are imported when a network is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from lowtide.bench.models.network import Recipe, images


def torchvision_model(name: str, **options: Any) -> Callable[[], nn.Module]:
    """A factory of torchvision's model `name`."""

    def factory() -> nn.Module:
        import torchvision

        return getattr(torchvision.models, name)(weights=None, **options)

    return factory


def timm_model(name: str) -> Callable[[], nn.Module]:
    """A factory of timm's model `name`."""

    def factory() -> nn.Module:
        import timm

        return timm.create_model(name, pretrained=False)

    return factory


def _fcn() -> nn.Module:
    import torchvision

    return torchvision.models.segmentation.fcn_resnet50(weights=None, weights_backbone=None, num_classes=21)


def _sum_of_out(output: Any) -> Tensor:
    return output["out"].sum()


def _torchvision(name: str, size: int = 224, **options: Any) -> Recipe:
    return Recipe(name, torchvision_model(name, **options), images, size, "torchvision")


def _timm(name: str, size: int) -> Recipe:
    return Recipe(name, timm_model(name), images, size, "timm")


RECIPES = (
    _torchvision("alexnet"),
    _torchvision("vgg11"),
    _torchvision("vgg16"),
    _torchvision("vgg19"),
    _torchvision("resnet18"),
    _torchvision("resnet50"),
    _torchvision("resnet101"),
    _torchvision("wide_resnet50_2"),
    _timm("seresnet50", 224),
    _torchvision("densenet121"),
    _torchvision("inception_v3", 299, aux_logits=False, init_weights=False),
    _timm("inception_v4", 299),
    _timm("nasnetalarge", 331),
    _torchvision("efficientnet_b0"),
    Recipe("fcn_resnet50", _fcn, images, 224, "torchvision, fully convolutional segmentation", _sum_of_out),
)
