"""The reference: every public name, from its signature and docstring."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from types import ModuleType
from typing import Any

import lowtide
from docs.generate.docstring import parse

# Page -> (title, names). Whatever `lowtide` exports is on exactly one of them; a test looks.
PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "verbs": (
        "Functions",
        (
            "plan", "remat", "apply", "checkpoint", "verify", "fit", "tradeoff", "measure", "trace", "simulate",
            "check", "load", "solve", "reduce", "lift",
        ),
    ),
    "nouns": (
        "Objects",
        ("Plan", "Step", "Category", "Timeline", "Verdict", "Fit", "Curve", "Measurement", "Solution", "Chain",
         "Stage", "Graph"),
    ),
    "errors": ("Errors", ("LowtideError", "InputError", "TraceError", "PlanError", "ReplayError")),
}  # fmt: skip
ELSEWHERE = {"SOLVERS": "the pages of solvers", "chain": "the module of Chain and Stage"}


def pages() -> dict[str, str]:
    """Path in the documentation -> Markdown."""
    return {
        f"reference/{page}.md": f"# {title}\n\n" + "\n\n".join(_entry(name) for name in names) + "\n"
        for page, (title, names) in PAGES.items()
    }


def _entry(name: str) -> str:
    thing = getattr(lowtide, name)
    parts = [f"## lowtide.{name}"]
    if inspect.isclass(thing):
        parts += _class(name, thing)
    else:
        parts += [_signature(name, thing), parse(thing.__doc__).markdown()]
    return "\n\n".join(part for part in parts if part)


def _class(name: str, cls: type) -> Iterator[str]:
    if is_dataclass(cls):
        yield _signature(name, cls)
    elif issubclass(cls, Exception):
        yield f"Bases: {', '.join(f'`{base.__name__}`' for base in cls.__bases__)}"
    yield parse(cls.__doc__).markdown()
    if issubclass(cls, Enum):
        yield "\n".join(f"* `{m.name}`: {m.value}" for m in cls)
    for member, made in vars(cls).items():
        if member.startswith("_") or issubclass(cls, Enum):
            continue
        doc = _docstring_of(made)
        if not doc:
            continue
        yield f"### {name}.{member}"
        function = _function(made)
        if function is not None:
            yield _signature(member, function)
        yield parse(doc).markdown()


def _function(made: Any) -> Any:
    if isinstance(made, (staticmethod, classmethod)):
        return made.__func__
    return made if inspect.isfunction(made) else None


def _docstring_of(made: Any) -> str | None:
    """The docstring of a method or property; None for anything else, such as a field's default."""
    function = _function(made)
    if function is not None:
        return function.__doc__
    if isinstance(made, property) or type(made).__name__ == "cached_property":
        return made.__doc__
    return None


def _signature(name: str, thing: Any) -> str:
    """The call with its types; one parameter a line if it does not fit one line."""
    signature = inspect.signature(thing)
    parameters = [p.replace(default=_Shown(p.default)) if p.default is not p.empty else p
                  for p in signature.parameters.values()]  # fmt: skip
    signature = signature.replace(parameters=parameters, return_annotation=signature.return_annotation)
    text = f"{name}{signature}".replace("'", "")
    if len(text) > 100:
        text = _broken(name, signature).replace("'", "")
    return f"```text\n{text}\n```"


class _Shown:
    """A default as it is to be read."""

    def __init__(self, value: Any) -> None:
        self.text = f'"{value}"' if isinstance(value, str) else repr(value)
        if callable(value) or self.text.startswith("<"):
            self.text = "..."

    def __repr__(self) -> str:
        return self.text


def _broken(name: str, signature: inspect.Signature) -> str:
    lines, star = [], False
    for p in signature.parameters.values():
        if p.kind is p.KEYWORD_ONLY and not star:
            lines.append("    *,")
            star = True
        lines.append(f"    {p},")
    result = signature.return_annotation
    arrow = "" if result is signature.empty else f" -> {result}"
    return "\n".join([f"{name}(", *lines, f"){arrow}"])


def exported() -> set[str]:
    """What the package says is public, modules aside."""
    return {name for name in lowtide.__all__ if not isinstance(getattr(lowtide, name), ModuleType)}
