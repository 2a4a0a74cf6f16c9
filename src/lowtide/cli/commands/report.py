"""`lowtide report PLAN`: a plan as one HTML page, or as a figure."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from lowtide.cli.terminal import Terminal
from lowtide.errors import InputError

if TYPE_CHECKING:
    from lowtide.planning.plan import Plan
    from lowtide.report.tradeoff_svg import Points

SUMMARY = "show a plan as one HTML page that opens offline: timeline, structure, modules, trade-off"
EXAMPLES = [
    "lowtide report plan.json -o report.html",
    "lowtide report plan.json -o report.html --curve",
    "lowtide report plan.json --curve curve.json",
    "lowtide report plan.json --png timeline.png --svg timeline.svg",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("plan", metavar="PLAN", help="a plan that lowtide plan wrote")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="the page (default: named as the plan; none if there is a figure)"
    )
    parser.add_argument(
        "--curve",
        nargs="?",
        const="",
        metavar="FILE",
        help="draw the trade-off curve, too: what lowtide curve --json printed, or plan for other budgets now",
    )
    parser.add_argument("--points", type=int, default=12, metavar="N", help="about how many plans on it (default 12)")
    parser.add_argument("--png", metavar="FILE", help="draw the timeline as a figure, too (needs matplotlib)")
    parser.add_argument("--svg", metavar="FILE", help="the same as SVG (needs matplotlib)")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Read, draw, write."""
    from lowtide.files import write_whole
    from lowtide.planning.plan import load
    from lowtide.report.page import page
    from lowtide.report.timeline_figure import draw_timeline

    plan = load(args.plan)
    output = args.output
    if output is None and args.png is None and args.svg is None:
        output = str(Path(args.plan).with_suffix(".html"))
    for path in (output, args.png, args.svg):
        if path is not None and not Path(path).parent.is_dir():
            raise InputError(f"cannot write {path!r}: there is no such folder")
    written: list[str] = []
    if output is not None:
        write_whole(output, page(plan, _curve(plan, args, terminal)), "the report")
        written.append(output)
    for path, file_format in ((args.png, "png"), (args.svg, "svg")):
        if path is not None:
            draw_timeline(plan, path, file_format)
            written.append(path)
    if args.json:
        terminal.show_json({"written": written})
    else:
        terminal.show("\n".join(f"wrote {path}" for path in written))
    return 0


def _curve(plan: Plan, args: argparse.Namespace, terminal: Terminal) -> Points | None:
    """The curve that was asked for: from a file, or planned now with the plan's costs."""
    from lowtide.planning.compress import compressed, uncompressed
    from lowtide.planning.tradeoff import tradeoff
    from lowtide.report.tradeoff_svg import points_of

    if args.curve is None:
        return None
    if not args.curve:
        with terminal.progress() as progress:
            made = tradeoff(
                plan.step,
                args.points,
                progress=progress and (lambda fraction: progress("plan other budgets", fraction)),
            )
        return points_of(made.to_json())
    try:
        data = json.loads(Path(args.curve).read_text())
    except OSError as e:
        raise InputError(f"cannot read the curve {args.curve!r}: {e.strerror}") from e
    except ValueError as e:
        raise InputError(f"{args.curve!r} is not a curve: it is not JSON") from e
    curve = points_of(data)
    plain = uncompressed(plan.step)  # a curve may be of the step as it was traced, or with codes
    if curve.digest not in (plan.step.digest, plain.digest, compressed(plain).digest):
        raise InputError(f"the curve {args.curve!r} is for another step than the plan {args.plan!r}: make it again")
    return curve
