"""`lowtide solvers`: who can plan, and for what."""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from lowtide.cli.terminal import Terminal

SUMMARY = "list the solvers and what each of them optimises"
EXAMPLES = ["lowtide solvers", "lowtide solvers --json"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """One line per solver: name and the first sentence of its documentation."""
    solvers: Mapping[str, Any] = importlib.import_module("lowtide.planning.solve").SOLVERS
    found = {name: summary(solver) for name, solver in solvers.items()}
    if args.json:
        terminal.show_json([{"name": name, "summary": text} for name, text in found.items()])
    else:
        width = max(map(len, found), default=0)
        terminal.show("\n".join(f"{name.ljust(width)}  {text}" for name, text in found.items()))
    return 0


def summary(solver: Any) -> str:
    """The first sentence of a solver's docstring, on one line."""
    text = " ".join((inspect.getdoc(solver) or "").split("\n\n")[0].split())
    first, dot, _ = text.partition(". ")
    return first + "." if dot else text
