"""`lowtide curve MODEL`: what memory costs in time, from no recomputation to the least peak."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lowtide.cli.commands.plan import with_values
from lowtide.cli.model_arguments import Call, add_model_arguments, running
from lowtide.cli.terminal import Report, Terminal
from lowtide.errors import InputError

if TYPE_CHECKING:
    from lowtide.planning.tradeoff import Curve

SUMMARY = "show the trade-off between peak memory and added time"
EXAMPLES = [
    "lowtide curve torchvision:resnet50 --input 64x3x224x224 --device h100",
    "lowtide curve hf:gpt2 --input 8x512 --points 10 --figure gpt2.png",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_model_arguments(parser)
    parser.add_argument("--device", metavar="NAME", help="what time is reckoned for, as for lowtide plan")
    parser.add_argument("--points", type=int, default=20, metavar="N", help="about how many plans (default 20)")
    parser.add_argument(
        "--max-slowdown", type=float, default=0.5, metavar="SHARE", help="most added time (default 0.5: 50 %%)"
    )
    parser.add_argument("--figure", metavar="FILE", help="draw the curve, too: .png, .svg or .pdf (needs matplotlib)")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Plan, print, draw."""
    if args.figure is not None and not Path(args.figure).parent.is_dir():
        raise InputError(f"--figure {args.figure}: there is no such folder")
    with terminal.progress() as progress:
        curve = with_values(args, terminal, lambda call: _curve(call, args, progress))
    if args.figure is not None:
        from lowtide.report.tradeoff_figure import draw

        draw(curve, args.figure)
        terminal.note(f"wrote {args.figure}")
    if args.json:
        terminal.show_json({"model": curve.step.meta.get("name"), **curve.to_json()})
    else:
        terminal.show(repr(curve))
    return 0


def _curve(call: Call, args: argparse.Namespace, progress: Report | None) -> Curve:
    import lowtide

    with running(call):
        curve: Any = lowtide.tradeoff(
            call.loaded.model,
            call.args,
            call.kwargs,
            loss=call.loaded.loss,
            optimizer=args.optimizer,
            device=args.device,
            points=args.points,
            max_slowdown=args.max_slowdown,
            progress=progress,
        )
    curve.step.meta["name"] = call.loaded.name
    return curve
