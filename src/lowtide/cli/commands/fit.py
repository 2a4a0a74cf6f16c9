"""`lowtide fit MODEL --memory SIZE`: the largest batch that fits, without a plan and with one."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lowtide.cli.commands.plan import with_values
from lowtide.cli.model_arguments import Call, add_model_arguments, running
from lowtide.cli.terminal import Report, Terminal
from lowtide.errors import InputError

if TYPE_CHECKING:
    from lowtide.acting.fit import Fit

SUMMARY = "tell the largest batch (or length) that fits into some memory"
EXAMPLES = [
    "lowtide fit torchvision:resnet50 --input 1x3x224x224 --memory 24GiB --optimizer adamw",
    "lowtide fit hf:gpt2 --input 1x1024 --memory 16GiB --optimizer adamw --dtype bfloat16 --device a100",
    "lowtide fit hf:gpt2 --input 1x128 --set n_positions=100000 --memory 16GiB --grow 1",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_model_arguments(parser)
    parser.add_argument("--memory", required=True, metavar="SIZE", help="what the device has: 24GiB")
    parser.add_argument(
        "--grow", type=int, default=0, metavar="DIM", help="the dimension that grows: 0 the batch (default), 1 a length"
    )
    parser.add_argument("--device", metavar="NAME", help="what time is reckoned for, as for lowtide plan")
    parser.add_argument("--quick-slowdown", type=float, default=0.1, metavar="SHARE", help="default 0.1: 10 %%")
    parser.add_argument("--max-slowdown", type=float, default=0.34, metavar="SHARE", help="default 0.34: 34 %%")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Search and print."""
    with terminal.progress() as progress:
        found = with_values(args, terminal, lambda call: _fit(call, args, progress))
    if args.json:
        terminal.show_json(found.to_json())
    else:
        terminal.show(repr(found))
    return 0


def _fit(call: Call, args: argparse.Namespace, progress: Report | None) -> Fit:
    from lowtide.acting.fit import fit

    with running(call):
        return fit(
            call.loaded.model,
            call.args,
            call.kwargs,
            memory=args.memory,
            make_args=_maker(call, args),
            loss=call.loaded.loss,
            optimizer=args.optimizer,
            grow=args.grow,
            device=args.device,
            quick_slowdown=args.quick_slowdown,
            max_slowdown=args.max_slowdown,
            progress=progress,
        )


def _maker(call: Call, args: argparse.Namespace) -> Callable[[int], Any] | None:
    """Inputs of any size, as the command line describes them; None where the user's file made them."""
    from lowtide.models import parse_input

    specs = [parse_input(text) for text in args.input]
    if not specs and call.loaded.args is not None:
        return None
    chosen = call.loaded.chosen(specs)
    grow: int = args.grow
    growing = [s.shape for s in chosen if len(s.shape) > grow >= 0]
    if not growing:
        raise InputError(f"--grow {grow}: no input has that dimension")
    size: int = growing[0][grow]

    def grown(shape: tuple[int, ...], n: int) -> tuple[int, ...]:
        return (*shape[:grow], n, *shape[grow + 1 :]) if shape[grow : grow + 1] == (size,) else shape

    def make(n: int) -> Any:
        return call.loaded.inputs([replace(s, shape=grown(s.shape, n)) for s in chosen])

    return make
