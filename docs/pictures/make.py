"""The pictures of the documentation, made anew: `make pictures`. Needs Chromium; everything else is in the dev extra.

The plan is that of a ResNet-50 at a batch of 64; it is traced without data, so that this runs on any machine.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import torch
from nbclient import NotebookClient
from rich.console import Console

import lowtide
from lowtide.cli.main import main
from lowtide.cli.terminal import Terminal
from lowtide.report.text import plan_document
from tests.browser import browser

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MODEL = ["torchvision:resnet50", "--input", "64x3x224x224", "--optimizer", "adamw", "--device", "a100"]


def make(folder: Path) -> None:
    """All pictures, into this folder."""
    torch.manual_seed(0)
    plan, page = folder / "plan.json", folder / "report.html"
    run(["plan", *MODEL, "-o", str(plan)])
    run(["report", str(plan), "-o", str(page), "--curve", "--png", str(HERE / "timeline.png")])
    with browser() as b:
        report(b, page)
        terminal(b, folder, plan)
        notebook(b, folder)


def run(argv: list[str]) -> None:
    if main(argv) != 0:
        raise SystemExit(f"lowtide {' '.join(argv)} failed")


def report(b: Any, page: Path) -> None:
    """The page as a whole in light, and its top with the pointer on the timeline in dark."""
    for theme in ("light", "dark"):
        tab = b.new_page(viewport={"width": 1200, "height": 900}, color_scheme=theme)
        tab.goto(page.as_uri())
        if theme == "dark":
            box = tab.locator("svg.timeline").bounding_box()
            tab.mouse.move(box["x"] + 0.42 * box["width"], box["y"] + 0.55 * box["height"])
        tab.screenshot(path=HERE / f"report-{theme}.png", full_page=theme == "light")
        tab.close()


def terminal(b: Any, folder: Path, plan: Path) -> None:
    """What `lowtide plan` prints, in a terminal of 80 columns."""
    console = Console(record=True, width=80, force_terminal=True, file=io.StringIO(), highlight=False)
    Terminal(console).show_document(plan_document(lowtide.load(plan)))
    svg = folder / "terminal.svg"
    svg.write_text(console.export_svg(title="lowtide plan"))
    tab = b.new_page(viewport={"width": 1000, "height": 860})
    tab.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    tab.set_content(svg.read_text())
    tab.locator("svg").screenshot(path=HERE / "terminal.png")
    tab.close()


def notebook(b: Any, folder: Path) -> None:
    """The first plan of the example notebook, as it shows itself."""
    book = nbformat.read(ROOT / "examples" / "quickstart.ipynb", as_version=4)
    NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    html = [
        o["data"]["text/html"] for c in book.cells for o in c.get("outputs", ()) if "text/html" in o.get("data", {})
    ]
    tab = b.new_page(viewport={"width": 900, "height": 600})
    tab.set_content(f"<body style='margin: 12px; font: 14px sans-serif'>{html[0]}</body>")
    tab.screenshot(path=HERE / "notebook.png", full_page=True)
    tab.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        make(Path(name))
