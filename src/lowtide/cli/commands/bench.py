"""`lowtide bench thesis`: run experiments and write down what they found."""

from __future__ import annotations

import argparse
import importlib.util
import warnings
from pathlib import Path
from typing import Any

from lowtide.cli.terminal import Terminal
from lowtide.errors import InputError

SUMMARY = "run the experiments of the thesis: tables, JSON and figures"
EXAMPLES = [
    "lowtide bench thesis --quick",
    "lowtide bench thesis --only 5.3,5.6 -o results",
]

NUMBERS = ("5.2", "5.3", "5.4", "5.5", "5.6")
_PACKAGES = {"torchvision": "vision", "timm": "timm", "matplotlib": "report"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("what", metavar="WHAT", choices=("thesis",), help="thesis")
    parser.add_argument("--only", metavar="NUMBERS", help=f"some of {','.join(NUMBERS)} (default: all)")
    parser.add_argument(
        "-o", "--output", metavar="DIR", default="thesis-results", help="where to write (default thesis-results)"
    )
    parser.add_argument("--quick", action="store_true", help="few and small networks, under two minutes")
    parser.add_argument("--json", action="store_true", help="print the results as JSON instead of tables")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Per experiment: its tables on stdout; JSON, Markdown and figure in the folder. Exit status 1 if some network
    could not be run under its plan."""
    wanted = chosen(args.only)
    _require_packages()
    folder = Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    from lowtide.bench.thesis import EXPERIMENTS, conduct

    failed, results = False, list[dict[str, Any]]()
    for k, number in enumerate(wanted):
        experiment = EXPERIMENTS[number]
        with terminal.progress() as progress, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of networks and kernels: they say nothing about the result

            def report(what: str, fraction: float, k: int = k, number: str = number) -> None:
                if progress is not None:
                    progress(f"{number} {what}", (k + fraction) / len(wanted))

            report("start", 0.0)
            result = conduct(experiment, args.quick, report)
            paths = result.write(folder, experiment.draw(result))
        results.append(result.to_json())
        if not args.json:
            terminal.show(result.markdown())
        wall, processor = result.seconds
        terminal.note(
            f"{number}: {wall:.0f} s ({processor:.0f} s of processor time), wrote {', '.join(map(str, paths))}"
        )
        failed = failed or any("error" in row for table in result.tables for row in table.rows)
    if args.json:
        terminal.show_json(results)
    return 1 if failed else 0


def chosen(only: str | None) -> list[str]:
    """The numbers asked for, in order.

    Raises:
        InputError: if one is unknown.
    """
    if only is None:
        return list(NUMBERS)
    asked = [n.strip() for n in only.split(",") if n.strip()]
    unknown = [n for n in asked if n not in NUMBERS]
    if unknown or not asked:
        raise InputError(f"--only {only} names no experiment: choose from {', '.join(NUMBERS)}")
    return [n for n in NUMBERS if n in asked]


def _require_packages() -> None:
    missing = [extra for package, extra in _PACKAGES.items() if importlib.util.find_spec(package) is None]
    if missing:
        raise InputError(
            f"the experiments need more packages: install them with pip install 'lowtide[{','.join(missing)}]'"
        )
