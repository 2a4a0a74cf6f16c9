"""Plans, timelines and verdicts as HTML for notebooks: their report, with a picture that needs no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from lowtide.planning.simulate import simulate
from lowtide.report.document import Document, Facts, Mood, Pair, Part, Picture, Table
from lowtide.report.layers import layers, without_plan
from lowtide.report.text import VerdictLike, plan_document, timeline_document, verdict_document
from lowtide.report.timeline_svg import css_class, timeline_svg

if TYPE_CHECKING:
    from lowtide.planning.plan import Plan
    from lowtide.planning.simulate import Timeline
    from lowtide.report.layers import Layers

WIDTH, HEIGHT = 800, 260
_STYLE = """
div.lowtide { color: var(--ink); background: var(--paper); padding: 8px 12px; max-width: 860px; }
div.lowtide table { border-collapse: collapse; margin: 10px 28px 4px 0; font-variant-numeric: tabular-nums; }
div.lowtide td, div.lowtide th { text-align: right; padding: 2px 10px; background: none; color: var(--ink); }
div.lowtide td:first-child, div.lowtide th:first-child { text-align: left; padding-left: 0; }
div.lowtide th { color: var(--soft); border-bottom: 1px solid var(--soft); font-weight: 600; }
div.lowtide .pair { display: flex; flex-wrap: wrap; }
div.lowtide .facts td { text-align: left; white-space: normal; }
div.lowtide .facts td:first-child { color: var(--soft); white-space: nowrap; }
div.lowtide .legend { font-size: 12px; margin-top: 6px; }
div.lowtide .legend i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin: 0 5px 0 12px; }
div.lowtide b.good { color: #1a7f37; }
div.lowtide b.bad { color: var(--baseline); }
"""


def plan_html(plan: Plan) -> str:
    """A plan: its timeline as a picture, that of the step without it as a line, and its report."""
    planned = layers(simulate(plan.step, plan), plan.keep)
    return _html(plan_document(plan), _picture(planned, without_plan(plan.step)))


def timeline_html(timeline: Timeline) -> str:
    """A timeline: its picture and its report."""
    return _html(timeline_document(timeline), _picture(layers(timeline, timeline.keep), None))


def verdict_html(verdict: VerdictLike) -> str:
    """A verdict: its report."""
    return _html(verdict_document(verdict), "")


def _picture(planned: Layers, baseline: Layers | None) -> str:
    used = [kind for kind, row in planned.of.items() if any(row)]
    legend = "".join(f'<i style="background: var(--{css_class(k)})"></i>{escape(k.value)}' for k in used)
    if baseline is not None:
        legend += '<i style="background: var(--baseline); height: 2px; vertical-align: 3px"></i>without a plan'
    return f'<div class="legend">{legend}</div>{timeline_svg(planned, baseline, None, WIDTH, HEIGHT)}'


def _html(document: Document, picture: str) -> str:
    css = files("lowtide.report").joinpath("assets", "pictures.css").read_text(encoding="utf-8")
    title = f'<b class="{document.mood.value}">{escape(document.title)}</b>'
    if document.mood is Mood.PLAIN:
        title = f"<b>{escape(document.title)}</b>"
    body = "".join(map(_part, document.parts))
    return f'<div class="lowtide"><style>{css}{_STYLE}</style>{title}{picture}{body}</div>'


def _part(part: Part) -> str:
    if isinstance(part, Picture):  # the real picture is there instead
        return ""
    if isinstance(part, Facts):
        rows = "".join(f"<tr><td>{escape(a)}</td><td>{escape(b)}</td></tr>" for a, b in part.rows)
        return f'<table class="facts">{rows}</table>'
    if isinstance(part, Table):
        return _table(part)
    if isinstance(part, Pair):
        return f'<div class="pair">{_table(part.left)}{_table(part.right)}</div>'
    return "".join(f"<div>{escape(line)}</div>" for line in part.lines)


def _table(part: Table) -> str:
    head, *rows = part.rows
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{_cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"


def _cells(tag: str, row: Sequence[str]) -> str:
    return "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)
