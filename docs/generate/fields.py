"""Tables of the fields of records, for the page about the plan format."""

from __future__ import annotations

import importlib
from dataclasses import fields
from typing import Any

from docs.generate.docstring import parse


def table(path: str) -> str:
    """`lowtide.planning.step.Op` -> its fields in order, each with its type and what the docstring says of it."""
    module, _, name = path.rpartition(".")
    cls: Any = getattr(importlib.import_module(module), name)
    section = parse(cls.__doc__).section("Attributes")
    told: dict[str, str] = {}
    for names, text in (section.entries() if section else {}).items():
        told.update(dict.fromkeys(names.split(", "), text))
    rows = [f"| {k} | `{f.name}` | `{f.type}` | {told.get(f.name, '')} |" for k, f in enumerate(fields(cls))]
    return "\n".join(["| place | field | type | |", "|---|---|---|---|", *rows])
