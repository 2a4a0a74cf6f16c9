"""`Experiment` and `Result`: what an experiment is, and what it hands back. Rows are plain data; text is made last."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lowtide.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[str, float], None]
Row = Mapping[str, Any]

FORMAT = 1


@dataclass(frozen=True)
class Table:
    """Rows with the columns that people see, in order. A row may lack a column ('-') and may hold more than them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def markdown(self) -> str:
        """The table as Markdown; its first column is text, the rest is aligned to the right."""
        body = [[_text(row.get(c)) for c in self.columns] for row in self.rows]
        widths = [max(2, *map(len, column)) for column in zip(self.columns, *body, strict=True)]
        pad = [str.ljust, *[str.rjust] * (len(widths) - 1)]

        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(p(c, w) for p, c, w in zip(pad, cells, widths, strict=True)) + " |"

        rule = "| " + " | ".join(["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]) + " |"
        return "\n".join([line(self.columns), rule, *map(line, body)])


@dataclass(frozen=True)
class Result:
    """What one experiment found.

    Attributes:
        number, name, title: of the experiment.
        tables: what was found; the figure is drawn from them alone.
        notes: what one has to know to read them.
        quick: whether the small run was asked for.
        seconds: wall time, and processor time of this process.
        where: machine, versions and date.
    """

    number: str
    name: str
    title: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    quick: bool = False
    seconds: tuple[float, float] = (0.0, 0.0)
    where: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def markdown(self) -> str:
        """Title, tables, notes."""
        parts = [f"## {self.number} {self.title}"]
        for table in self.tables:
            parts += [f"**{table.title}**", table.markdown()]
        parts.append("\n".join(f"* {note}" for note in self.notes))
        return "\n\n".join(part for part in parts if part) + "\n"

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "kind": "lowtide.experiment",
            "number": self.number,
            "name": self.name,
            "title": self.title,
            "quick": self.quick,
            "seconds": {"wall": self.seconds[0], "processor": self.seconds[1]},
            "where": dict(self.where),
            "tables": [
                {"title": t.title, "columns": t.columns, "rows": [dict(r) for r in t.rows]} for t in self.tables
            ],
            "notes": self.notes,
        }

    @staticmethod
    def from_json(data: Any) -> Result:
        """Inverse of `to_json`: an experiment can be drawn again without being run again.

        Raises:
            InputError: if `data` is not an experiment's result, or one of another format version.
        """
        if not isinstance(data, dict) or (data.get("kind"), data.get("format")) != ("lowtide.experiment", FORMAT):  # pyright: ignore
            raise InputError(f"this is not the result of an experiment in format {FORMAT}: run it again")
        given = cast("dict[str, Any]", data)
        return Result(
            number=given["number"],
            name=given["name"],
            title=given["title"],
            tables=tuple(Table(t["title"], tuple(t["columns"]), tuple(t["rows"])) for t in given["tables"]),
            notes=tuple(given["notes"]),
            quick=given["quick"],
            seconds=(given["seconds"]["wall"], given["seconds"]["processor"]),
            where=given["where"],
        )

    def write(self, folder: Path, figure: Figure | None) -> list[Path]:
        """`5.2-prediction.json`, `.md` and `.png` in `folder`; the paths."""
        stem = f"{self.number}-{self.name}"
        out = [folder / f"{stem}.json", folder / f"{stem}.md"]
        out[0].write_text(json.dumps(self.to_json(), indent=1) + "\n")
        out[1].write_text(self.markdown())
        if figure is not None:
            out.append(folder / f"{stem}.png")
            figure.savefig(out[-1], dpi=110)  # pyright: ignore[reportUnknownMemberType]
        return out


@dataclass(frozen=True)
class Experiment:
    """One section of the thesis' chapter of experiments.

    Attributes:
        number, name, title: `'5.2'`, `'prediction'`, and a heading.
        run: (quick, progress) -> tables and notes.
        draw: result -> figure.
    """

    number: str
    name: str
    title: str
    run: Callable[[bool, Progress], tuple[tuple[Table, ...], tuple[str, ...]]]
    draw: Callable[[Result], Figure]


def _text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return str(value)
