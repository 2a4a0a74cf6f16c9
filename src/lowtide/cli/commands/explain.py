"""`lowtide explain PLAN`: what a plan does with each value, and why."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lowtide.cli.terminal import Terminal
from lowtide.errors import InputError

if TYPE_CHECKING:
    from lowtide.planning.plan import Plan
    from lowtide.report.fates import Fate

SUMMARY = "tell what a plan does with each value of a module, and why"
EXAMPLES = [
    "lowtide explain plan.json",
    "lowtide explain plan.json --module layer1.0",
    "lowtide explain plan.json --module layer1.0 --json",
    "lowtide explain plan.json --top 0",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("plan", metavar="PLAN", help="a plan that lowtide plan wrote")
    parser.add_argument("--module", metavar="PATH", help="only this module and those in it, with reasons")
    parser.add_argument(
        "--top", type=int, default=20, metavar="N", help="without --module: the N largest values (default 20, 0: all)"
    )
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Read the plan, tell."""
    from lowtide.planning.plan import load
    from lowtide.report.explain import explain_module, explain_plan
    from lowtide.report.fates import fates

    if args.top < 0:
        raise InputError(f"--top {args.top}: take 0 for all, or a number of values")
    plan = load(args.plan)
    every = fates(plan)
    if args.module is not None:
        every = [f for f in every if f.op and _within(f.module, args.module)]
        if not every:
            raise InputError(_no_module(plan, args.module))
    if args.json:
        terminal.show_json([_json(plan, f) for f in every])
    elif args.module is not None:
        terminal.show(explain_module(plan, every))
    else:
        terminal.show(explain_plan(plan, every, args.top))
    return 0


def _within(module: str, path: str) -> bool:
    return module == path or module.startswith(f"{path}.")


def _no_module(plan: Plan, path: str) -> str:
    """The sentence for a module that is not there, with the nearest that is."""
    from difflib import get_close_matches

    step = plan.step
    known: dict[str, None] = {}
    for op in step.ops[: step.n_forward]:
        parts = op.module.split(".")
        known.update(dict.fromkeys(".".join(parts[: k + 1]) for k in range(len(parts))))
    near = get_close_matches(path, [name for name in known if name], 3, 0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "lowtide explain PLAN lists what there is"
    return f"no op of forward ran in a module {path!r}: {hint}"


def _json(plan: Plan, fate: Fate) -> dict[str, Any]:
    from lowtide.report.fates import sentences

    return {**asdict(fate), "what": fate.what.value, "sentences": sentences(plan, fate)}
