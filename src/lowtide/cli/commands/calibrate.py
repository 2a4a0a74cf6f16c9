"""`lowtide calibrate MODEL`: time each kind of op of a step on this machine, and remember it."""

from __future__ import annotations

import argparse

from lowtide.cli.commands.plan import with_values
from lowtide.cli.model_arguments import Call, add_model_arguments, running
from lowtide.cli.terminal import Report, Terminal
from lowtide.planning.step import Step
from lowtide.units import format_bytes, format_seconds

SUMMARY = "measure time and workspace of each kind of op of a step here; plans with --device measured use it"
EXAMPLES = [
    "lowtide calibrate torchvision:resnet50 --input 8x3x224x224",
    "lowtide plan torchvision:resnet50 --input 8x3x224x224 --budget 60% --device measured",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_model_arguments(parser)
    parser.add_argument("--on", metavar="DEVICE", help="cpu or cuda:N (default: the CUDA device, if there is one)")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Measure and say where it is kept."""
    from lowtide.acting import cost

    where = cost.device_of(args.on)
    with terminal.progress() as progress:
        step = with_values(args, terminal, lambda call: _measured(call, args, progress))
    forward_s = sum(step.seconds[: step.n_forward])
    most = max(step.workspace_bytes, default=0)
    if args.json:
        terminal.show_json(
            {
                "device": cost.device_title(where),
                "ops": len(step.ops),
                "step_s": step.total_seconds,
                "forward_s": forward_s,
                "most_workspace_bytes": most,
                "kept_in": str(cost.cache_path(where)),
            }
        )
    else:
        terminal.show(
            f"{len(step.ops):,} ops on {cost.device_title(where)}: {format_seconds(step.total_seconds)} a step, "
            f"{format_seconds(forward_s)} of it forward; most workspace {format_bytes(most)}"
        )
    terminal.note(f"kept in {cost.cache_path(where)}")
    return 0


def _measured(call: Call, args: argparse.Namespace, progress: Report | None) -> Step:
    from lowtide.acting.cost import measured

    with running(call):
        return measured(
            call.loaded.model,
            call.args,
            call.kwargs,
            loss=call.loaded.loss,
            optimizer=args.optimizer,
            device=args.on,
            progress=progress,
        )
