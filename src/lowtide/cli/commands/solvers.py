"""`lowtide solvers`: who can plan."""

from __future__ import annotations

import argparse

from lowtide.cli.terminal import Terminal

SUMMARY = "list the solvers and what each of them optimises"
EXAMPLES = ["lowtide solvers", "lowtide solvers --json"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """One line per solver: its name and what it says of itself."""
    from lowtide.planning.solve import SOLVERS

    if args.json:
        rows = [{"name": name, "exact": solver.exact, "summary": solver.summary} for name, solver in SOLVERS.items()]
        terminal.show_json(rows)
    else:
        width = max(map(len, SOLVERS))
        terminal.show("\n".join(f"{name.ljust(width)}  {solver.summary}" for name, solver in SOLVERS.items()))
    return 0
