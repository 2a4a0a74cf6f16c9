"""A page per command, from its parser."""

from __future__ import annotations

import argparse
import re
from typing import Any

from lowtide.cli.main import build_parser, command_modules


def pages() -> dict[str, str]:
    """Path in the documentation -> Markdown."""
    parsers = parsers_by_name()
    return {f"commands/{name}.md": page(name, parser) for name, parser in parsers.items()}


def parsers_by_name() -> dict[str, argparse.ArgumentParser]:
    """Each command's own parser."""
    (sub,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(sub.choices)


def table() -> str:
    """All commands, with links."""
    rows = [f"| [`lowtide {n}`]({n}.md) | {m.SUMMARY} |" for n, m in command_modules().items()]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def page(name: str, parser: argparse.ArgumentParser) -> str:
    """What a command does, its options by group, examples."""
    module = command_modules()[name]
    parts = [
        f"# lowtide {name}",
        f"{module.SUMMARY[0].upper()}{module.SUMMARY[1:]}.",
        f"```text\n{_usage(parser)}\n```",
    ]
    examples = "\n".join(module.EXAMPLES)
    parts.append(f"## Examples\n\n```shell\n{examples}\n```")
    for group in parser._action_groups:
        actions = [a for a in group._group_actions if a.help != argparse.SUPPRESS]
        if actions:
            parts.append(f"## {_title(group.title)}\n\n{_options(parser, actions)}")
    return "\n\n".join(parts) + "\n"


def _usage(parser: argparse.ArgumentParser) -> str:
    """What must be given, and where the rest goes."""
    needed = [a for a in parser._actions if a.required or (not a.option_strings and a.nargs not in ("?", "*"))]
    options = [f"{a.option_strings[-1]} {a.metavar}" for a in needed if a.option_strings]
    return " ".join([parser.prog, *(str(a.metavar) for a in needed if not a.option_strings), *options, "[options]"])


def _title(title: str | None) -> str:
    text = title or "options"
    return text[0].upper() + text[1:]


def _options(parser: argparse.ArgumentParser, actions: list[argparse.Action]) -> str:
    rows = ["| option | what it does |", "|---|---|"]
    for action in actions:
        rows.append(f"| {_invocation(action)} | {_cell(_help(parser, action))} |")
    return "\n".join(rows)


def _invocation(action: argparse.Action) -> str:
    """`-o FILE`, `--output FILE`."""
    value = str(action.metavar or "")
    if not value and action.choices is not None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return f"`{value or action.dest}`"
    takes = action.nargs != 0
    tail = f" [{value}]" if action.nargs == "?" else f" {value}"
    names = ", ".join(f"`{option}`" for option in action.option_strings[:-1])
    last = f"`{action.option_strings[-1]}{tail if takes and value else ''}`"
    return f"{names}, {last}" if names else last


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    values: dict[str, Any] = {**vars(action), "prog": parser.prog}
    return (action.help or "") % values


def _cell(text: str) -> str:
    """Text in a table: examples of options as code, nothing that Markdown would take for its own."""
    text = re.sub(r"(?<![\w`])(--[a-z][\w-]*)", r"`\1`", text)
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")
