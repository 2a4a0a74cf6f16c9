"""What was published about the networks of Feng and Huang's table. None of it was measured here.

Their peaks are from the README of their code: `max_memory_allocated - max(start, end)` on a GPU in MB (2^20), cuDNN's
workspace included.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One row.

    Attributes:
        name: torchvision's name of the network.
        batch, size: of the input, (batch, 3, size, size).
        regular_mb, ogc_mb, added_time: their README: plain peak, their plan's peak, added time as a fraction.
        fake_regular_mb, own_plan_mb: peak of the regular step, and of their program's plan without reentrant
            checkpointing, on fake tensors; from a trial with their program before this command was written. None: it
            was not run.
        solver_s: seconds that their solver took there, as text; '' if not noted.
    """

    name: str
    batch: int
    regular_mb: int
    ogc_mb: int
    added_time: float
    fake_regular_mb: int
    own_plan_mb: int | None
    solver_s: str = ""
    size: int = 224


TABLE = (
    Published("alexnet", 1024, 4955, 3287, 0.34, 3201, 2269),
    Published("vgg11", 64, 3577, 2781, 0.34, 3339, 2352),
    Published("vgg13", 64, 5136, 3565, 0.33, 4515, 3136),
    Published("vgg16", 64, 5136, 3565, 0.32, 4834, 3136),
    Published("vgg19", 64, 5189, 3565, 0.33, 5152, 3136),
    Published("resnet18", 256, 5635, 3677, 0.30, 5318, 3136),
    Published("resnet34", 128, 4079, 1838, 0.35, 3884, 1568),
    Published("resnet50", 64, 5323, 1973, 0.31, 5255, 1936, "1.2"),
    Published("resnet101", 32, 3934, 1024, 0.35, 3878, 1005),
    Published("resnet152", 16, 2767, 526, 0.37, 2711, 502, "8.6"),
    Published("densenet121", 32, 4027, 898, 0.34, 3973, 760, "45-100"),
    Published("densenet161", 16, 3751, 666, 0.36, 3709, 591, "45-100"),
    Published("densenet169", 32, 4862, 897, 0.32, 4803, 801, "45-100"),
    Published("densenet201", 16, 3146, 474, 0.53, 3100, None, "45-100"),
    Published("inception_v3", 32, 3074, 881, 0.29, 2995, 760, size=300),
)
