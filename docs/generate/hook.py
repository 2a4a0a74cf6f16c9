"""What mkdocs calls while it builds the site: adds the pages and tables that are made from the code."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # for `docs.generate`, wherever mkdocs was started

from docs.generate import commands, fields, reference, solvers  # noqa: E402

# From the top of the repository: file -> where it is in the site.
ROOT_FILES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
_MARK = re.compile(r"<!-- made: ([\w.]+)(?: ([\w.]+))? -->")


def generated_pages() -> dict[str, str]:
    """Path in the documentation -> Markdown of every page that no one writes by hand."""
    copied = {to: (ROOT / name).read_text() for name, to in ROOT_FILES.items()}
    return {**commands.pages(), **solvers.pages(), **reference.pages(), **copied}


def filled(markdown: str) -> str:
    """`markdown` with what its marks `<!-- made: WHAT -->` stand for."""
    makers = {
        "commands": lambda _: commands.table(),
        "solvers": lambda _: solvers.table(),
        "comparison": lambda _: solvers.comparison(),
        "fields": fields.table,
    }
    return _MARK.sub(lambda m: makers[m[1]](m[2]), markdown)


def on_config(config: Any) -> Any:
    """Names of folders in the navigation become the pages in them, written or made."""
    written = sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))
    every = [*written, *generated_pages()]
    for entry in config.nav:
        for title, pages in entry.items():
            if isinstance(pages, list) and pages[-1].endswith("/"):
                first, folder = pages[:-1], pages[-1]
                entry[title] = [*first, *(p for p in every if p.startswith(folder) and p not in first)]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the made pages."""
    from mkdocs.structure.files import File

    for path, content in generated_pages().items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill the marks."""
    return filled(markdown)
