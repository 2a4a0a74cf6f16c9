"""`lowtide snapshot PLAN`: the predicted memory of a step for PyTorch's own viewer."""

from __future__ import annotations

import argparse
import pickle

from lowtide.cli.terminal import Terminal
from lowtide.units import format_bytes

SUMMARY = "write the predicted memory of a step as a snapshot that PyTorch's memory viewer reads"
EXAMPLES = [
    "lowtide snapshot plan.json -o snapshot.pickle",
    "lowtide snapshot plan.json --no-plan -o plain.pickle",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("plan", metavar="PLAN", help="a plan that lowtide plan wrote")
    parser.add_argument("-o", "--output", metavar="FILE", default="snapshot.pickle", help="default: snapshot.pickle")
    parser.add_argument("--no-plan", action="store_true", help="the same step without the plan")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Read, lay out, write."""
    from lowtide.files import write_whole
    from lowtide.planning.plan import load
    from lowtide.report.snapshot import snapshot

    plan = load(args.plan)
    data = snapshot(plan, baseline=args.no_plan)
    write_whole(args.output, pickle.dumps(data, protocol=4), "the snapshot")
    peak = plan.total_peak_bytes - plan.peak_bytes + plan.baseline_peak_bytes if args.no_plan else plan.total_peak_bytes
    if args.json:
        terminal.show_json(
            {"written": [args.output], "total_peak_bytes": peak, "events": len(data["device_traces"][0])}
        )
        return 0
    terminal.show(f"wrote {args.output}: peak {format_bytes(peak)}, everything in")
    terminal.note(f"to look at it: python -m torch.cuda._memory_viz trace_plot {args.output} -o snapshot.html")
    return 0
