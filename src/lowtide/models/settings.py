"""`n_layer=4` as text -> `{'n_layer': 4}`: what `--set` takes."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from lowtide.errors import InputError

_WORDS: dict[str, Any] = {"true": True, "false": False, "none": None, "null": None}


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Settings `name=value`. A value that reads as a Python literal is one, `true`, `false` and `none` are what they
    say, anything else is text.

    Raises:
        InputError: if a text has no `=`, a name that is no identifier, or a name that came before.
    """
    out: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise InputError(f"{text!r} is not a setting: write name=value, such as n_layer=4")
        if name in out:
            raise InputError(f"{name!r} is set twice: to {out[name]!r} and to {value!r}")
        out[name] = _value(value.strip())
    return out


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
