"""What was published about one benchmark: the peaks in the README of Feng & Huang's code, and plain reference figures.

Their figures are `max_memory_allocated - max(start, end)` on a GPU in MB (2^20), cuDNN's workspace included. The
reference figures are ours, of the same steps on fake tensors: without that workspace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One network of the table.

    Attributes:
        name: torchvision's name; size: height and width of the input.
        published_regular_mb, published_ogc_mb, published_time: their README: plain peak, their plan's, added time.
        regular_mb: the plain peak on fake tensors.
        ogc_mb: their plan on fake tensors, run without reentrance (None: not run).
        bound_mb: op-level bound on fake tensors.
        limit_mb: what Lowtide promises (None: nothing).
    """

    name: str
    batch: int
    published_regular_mb: int
    published_ogc_mb: int
    published_time: float
    regular_mb: int
    ogc_mb: int | None
    bound_mb: int
    limit_mb: int | None
    size: int = 224


ROWS = (
    Row("alexnet", 1024, 4955, 3287, 0.34, 3201, 2269, 2269, 2275),
    Row("vgg11", 64, 3577, 2781, 0.34, 3339, 2352, 2352, None),
    Row("vgg13", 64, 5136, 3565, 0.33, 4515, 3136, 2352, None),
    Row("vgg16", 64, 5136, 3565, 0.32, 4834, 3136, 2352, 3140),
    Row("vgg19", 64, 5189, 3565, 0.33, 5152, 3136, 2352, None),
    Row("resnet18", 256, 5635, 3677, 0.30, 5318, 3136, 2352, 3140),
    Row("resnet34", 128, 4079, 1838, 0.35, 3884, 1568, 1176, 1570),
    Row("resnet50", 64, 5323, 1973, 0.31, 5255, 1936, 686, 1475),
    Row("resnet101", 32, 3934, 1024, 0.35, 3878, 1005, 344, 790),
    Row("resnet152", 16, 2767, 526, 0.37, 2711, 502, 172, 435),
    Row("densenet121", 32, 4027, 898, 0.34, 3973, 760, 356, 530),
    Row("densenet161", 16, 3751, 666, 0.36, 3709, 591, 267, None),
    Row("densenet169", 32, 4862, 897, 0.32, 4803, 801, 356, None),
    Row("densenet201", 16, 3146, 474, 0.53, 3100, None, 178, None),
    Row("inception_v3", 32, 3074, 881, 0.29, 2995, 760, 506, 740, size=300),
)
