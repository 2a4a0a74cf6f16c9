"""Arguments in, exit status out: 0 is done, 1 is a check that failed, 2 is something the user can put right."""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
import traceback
import warnings
from types import ModuleType
from typing import NoReturn

import lowtide
from lowtide.cli import commands
from lowtide.cli.terminal import Terminal
from lowtide.errors import LowtideError

DONE, DIFFERS, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without repeating the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_INPUT, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def command_modules() -> dict[str, ModuleType]:
    """Command name -> its module, for every file in `lowtide.cli.commands`, by name."""
    names = sorted(info.name for info in pkgutil.iter_modules(commands.__path__))
    return {name: importlib.import_module(f"{commands.__name__}.{name}") for name in names}


def build_parser() -> argparse.ArgumentParser:
    """The parser with every command in it; `args.run` is the chosen command's function."""
    parser = _Parser(
        prog="lowtide",
        description="Plans which activations to keep and which to recompute, for the least peak memory in training.",
        epilog=_epilog(["lowtide verify torchvision:resnet18 --input 16x3x128x128", "lowtide plan --help"]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"lowtide {lowtide.__version__}")
    every = _Parser(add_help=False)
    every.add_argument("--traceback", action="store_true", help="show where in the code an error came up")
    sub = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)
    for name, module in command_modules().items():
        command = sub.add_parser(
            name,
            parents=[every],
            help=module.SUMMARY,
            description=f"{module.SUMMARY[0].upper()}{module.SUMMARY[1:]}.",
            epilog=_epilog(module.EXAMPLES),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def _epilog(examples: list[str]) -> str:
    return "\n".join(["examples:", *(f"  {example}" for example in examples)])


def main(argv: list[str] | None = None) -> int:
    """Run one command. `argv` without the program's name; None takes it from the process."""
    try:
        args = build_parser().parse_args(argv)
    except SystemExit as e:  # argparse has said what there is to say
        return e.code if isinstance(e.code, int) else WRONG_INPUT
    terminal = Terminal()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = terminal.show_warning
            status = int(args.run(args, terminal))
        sys.stdout.flush()
        return status
    except LowtideError as e:
        if args.traceback:
            traceback.print_exc()
        terminal.error(str(e))
        return WRONG_INPUT
    except KeyboardInterrupt:
        terminal.error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as e:
        if args.traceback:
            traceback.print_exc()
        terminal.error(f"cannot go on: {e.strerror or e}")
        return WRONG_INPUT


def console() -> NoReturn:
    """Entry point of the `lowtide` script."""
    raise SystemExit(main())
