"""Models by name: `torchvision:resnet50`, `timm:NAME`, `hf:gpt2`, `path/to/file.py:factory`. Nothing is downloaded."""

from __future__ import annotations

from lowtide.models.inputs import InputSpec, parse_input
from lowtide.models.load import SOURCES, load_model
from lowtide.models.loaded import LoadedModel
from lowtide.models.settings import parse_settings

__all__ = ["SOURCES", "InputSpec", "LoadedModel", "load_model", "parse_input", "parse_settings"]
