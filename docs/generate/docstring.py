"""Docstrings as Markdown. They are prose, with sections such as `Args:` and `Raises:` that list names."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

_SECTION = re.compile(r"^([A-Z][A-Za-z ]*):(?: (.*))?$")
_NAMES = re.compile(r"^([*\w]+(?:, [*\w]+)*): (.*)$")
LISTS = ("Args", "Attributes", "Raises")
PROSE = ("Returns", "Idea", "Complexity", "Reference", "Assumes", "Use it")
CODE = ("Example",)


@dataclass(frozen=True)
class Section:
    """One section: the lines below its head, without their indentation."""

    head: str
    lines: tuple[str, ...]

    def entries(self) -> dict[str, str]:
        """`names` -> text of a section that lists names; what has no name is under ''."""
        found: dict[str, str] = {}
        name = ""
        for line in self.lines:
            match = _NAMES.match(line)
            if match:
                name = match[1]
                found[name] = match[2]
            elif line.strip():
                found[name] = f"{found.get(name, '')} {line.strip()}".strip()
        return found

    def markdown(self) -> str:
        """The section below a bold head."""
        if self.head in CODE:
            body = "\n".join(["```pycon", *self.lines, "```"])
            return f"**{self.head}**\n\n{body}"
        if self.head in LISTS:
            rows = [
                f"* {', '.join(f'`{n}`' for n in names.split(', '))}: {text}" if names else text
                for names, text in self.entries().items()
            ]
            return f"**{self.head}**\n\n" + "\n".join(rows)
        text = "\n".join(self.lines)
        return f"**{self.head}:** {text}" if self.head in PROSE else f"**{self.head}**\n\n{text}"


@dataclass(frozen=True)
class Docstring:
    """A docstring taken apart: the first line, the prose below it, the sections."""

    summary: str
    text: str
    sections: tuple[Section, ...]

    def section(self, head: str) -> Section | None:
        return next((s for s in self.sections if s.head == head), None)

    def markdown(self, without: tuple[str, ...] = ()) -> str:
        """All of it but some sections."""
        parts = [self.summary, self.text, *(s.markdown() for s in self.sections if s.head not in without)]
        return "\n\n".join(part for part in parts if part)


def parse(text: str | None) -> Docstring:
    """Take a docstring apart. The summary is its first paragraph."""
    lines = inspect.cleandoc(text or "").splitlines()
    prose: list[str] = []
    sections: list[tuple[str, list[str]]] = []
    for line in lines:
        match = _SECTION.match(line)
        if match and match[1] in (*LISTS, *PROSE, *CODE):
            sections.append((match[1], [match[2]] if match[2] else []))
        elif not sections:
            prose.append(line)
        elif line and not line[0].isspace() and sections[-1][0] in LISTS + CODE:
            sections.append(("", [line]))  # prose again, after a list
        else:
            sections[-1][1].append(line)
    summary, _, rest = "\n".join(prose).strip().partition("\n\n")
    made = [Section(head, tuple(_dedented(body))) for head, body in sections]
    return Docstring(summary, rest.strip(), tuple(made))


def _dedented(lines: list[str]) -> list[str]:
    return inspect.cleandoc("\n".join(["", *lines])).splitlines()
