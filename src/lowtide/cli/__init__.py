"""The `lowtide` command. `main` takes arguments and returns the exit status; it raises nothing.

Each module in `lowtide.cli.commands` is a command of the same name: `SUMMARY` (one line), `EXAMPLES`,
`add_arguments(parser)` and `run(args, terminal) -> int`. Nothing here imports torch before a command runs.
"""

from __future__ import annotations

from lowtide.cli.main import console, main

__all__ = ["console", "main"]
