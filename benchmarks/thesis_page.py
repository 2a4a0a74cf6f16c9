"""Write what docs say about `lowtide bench thesis` from its results.

    lowtide bench thesis -o thesis-results && python -m benchmarks.thesis_page thesis-results

copies results and figures to docs/figures/thesis, writes docs/thesis-results.md (all tables) and the marked parts of
docs/thesis.md. Without a folder the pages are written again from the results that are in docs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from benchmarks.thesis_sentences import SECTIONS, SENTENCES, how
from lowtide.bench.result import Result

DOCS = Path(__file__).parents[1] / "docs"
STORE = DOCS / "figures" / "thesis"


def read(folder: Path) -> dict[str, Result]:
    """The results in a folder, by number.

    Raises:
        SystemExit: if one is missing, or is of the quick run.
    """
    found = {
        r.number: r for r in (Result.from_json(json.loads(p.read_text())) for p in sorted(folder.glob("5.*.json")))
    }
    missing = [n for n in SECTIONS if n not in found or found[n].quick]
    if missing:
        raise SystemExit(f"{folder} lacks full results of {', '.join(missing)}: run lowtide bench thesis -o {folder}")
    return found


def page(text: str, results: Mapping[str, Result]) -> str:
    """docs/thesis.md with its marked parts written anew.

    Raises:
        ValueError: if a mark is missing.
    """
    for name in ("how", *SECTIONS):
        body = how(results) if name == "how" else SENTENCES[name](results[name])
        begin, end = f"<!-- results: {name} -->\n", "<!-- end -->\n"
        if text.count(begin) != 1 or end not in text.partition(begin)[2]:
            raise ValueError(f"docs/thesis.md must have the mark '{begin.strip()}' once, and an end for it")
        before, _, rest = text.partition(begin)
        text = before + begin + filled(body) + "\n" + end + rest.partition(end)[2]
    return text


def tables(results: Mapping[str, Result]) -> str:
    """docs/thesis-results.md."""
    head = "# All tables of `lowtide bench thesis`\n\nWritten by `python -m benchmarks.thesis_page`.\n\n"
    return head + "\n".join(results[n].markdown() for n in SECTIONS)


def filled(body: str) -> str:
    """Paragraphs in lines of 120 characters; tables as they are."""
    parts = body.split("\n\n")
    return "\n\n".join(p if p.startswith("|") else textwrap.fill(p, 120, break_on_hyphens=False) for p in parts)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="where lowtide bench thesis wrote")
    args = parser.parse_args(argv)
    if args.folder is not None:
        read(args.folder)
        for file in [*args.folder.glob("5.*.json"), *args.folder.glob("5.*.png")]:
            shutil.copy(file, STORE / file.name)
    results = read(STORE)
    (DOCS / "thesis-results.md").write_text(tables(results))
    (DOCS / "thesis.md").write_text(page((DOCS / "thesis.md").read_text(), results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
