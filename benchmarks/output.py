"""A benchmark's rows as a table on the terminal and as JSON, with what they were measured on."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lowtide.bench.where import where


@dataclass(frozen=True)
class Limit:
    """A promise about one number, and whether it was kept."""

    what: str
    value: float
    limit: float

    @property
    def kept(self) -> bool:
        return self.value <= self.limit

    def __str__(self) -> str:
        return f"{'kept  ' if self.kept else 'BROKEN'}  {self.what}: {self.value:,.4g} (at most {self.limit:,.4g})"


@dataclass
class Report:
    """Rows of one benchmark: column name -> text for people, and the same as plain data for the file."""

    name: str
    title: str
    columns: Sequence[str]
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    limits: list[Limit] = field(default_factory=list[Limit])
    notes: list[str] = field(default_factory=list[str])

    def add(self, **row: Any) -> None:
        """Add a row. Keys that are no columns go to the file only. On a terminal it also shows at once."""
        self.rows.append(row)
        if sys.stderr.isatty():
            print("  ".join(_text(row.get(c)) for c in self.columns), file=sys.stderr)

    def finish(self, output: str | None) -> int:
        """Print all of it, write `output` if given, and return an exit status: 1 if a promise was broken."""
        table = Table(title=self.title, title_justify="left")
        for i, c in enumerate(self.columns):
            table.add_column(c, justify="left" if i == 0 else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*(_text(row.get(c)) for c in self.columns))
        wide = None if sys.stdout.isatty() else 200
        console = Console(width=wide, highlight=False, soft_wrap=False)
        console.print(table)
        for line in self.notes:
            console.print(line, markup=False, soft_wrap=True)
        broken = [limit for limit in self.limits if not limit.kept]
        for limit in broken:
            console.print(str(limit), markup=False, soft_wrap=True)
        if self.limits:
            verdict = "FAIL" if broken else "PASS"
            console.print(
                f"{verdict}  {len(self.limits) - len(broken)} of {len(self.limits)} limits kept", markup=False
            )
        if output is not None:
            data = {
                "format": 1,
                "kind": f"lowtide.benchmark.{self.name}",
                "title": self.title,
                "where": where() | {"command": _command()},
                "rows": self.rows,
                "limits": [{"what": x.what, "value": x.value, "limit": x.limit, "kept": x.kept} for x in self.limits],
                "notes": self.notes,
            }
            Path(output).write_text(json.dumps(data, indent=1) + "\n")
        return 0 if all(x.kept for x in self.limits) else 1


def _command() -> str:
    return shlex.join(["python", "-m", f"benchmarks.{Path(sys.argv[0]).stem}", *sys.argv[1:]])


def parser(doc: str | None, names: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The options every benchmark has."""
    out = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    out.add_argument("-o", "--output", metavar="FILE", help="also write the rows as JSON")
    if names:
        out.add_argument("--only", metavar="NAMES", help=f"some of {', '.join(names)} (with commas)")
    return out


def chosen(only: str | None, names: Sequence[str]) -> list[str]:
    """The names asked for, in the benchmark's order.

    Raises:
        SystemExit: if one is unknown.
    """
    if only is None:
        return list(names)
    wanted = only.split(",")
    unknown = [n for n in wanted if n not in names]
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are {', '.join(names)}")
    return [n for n in names if n in wanted]


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return str(value)
