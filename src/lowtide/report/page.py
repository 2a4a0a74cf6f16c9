"""A plan as one HTML file that opens anywhere: pictures, tables, and nothing loaded from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from lowtide.planning.blocks import Kind, history
from lowtide.planning.step import Phase
from lowtide.report.layers import Layers, layers_of, without_plan
from lowtide.report.names import place, short_op, short_place
from lowtide.report.network_svg import network_svg
from lowtide.report.saved import saved_storages
from lowtide.report.text import title
from lowtide.report.timeline_svg import Columns, columns_of, css_class, phase_at, timeline_svg
from lowtide.report.tradeoff_svg import Point, Points, tradeoff_svg
from lowtide.report.tree import ModuleWork, depths, module_work
from lowtide.units import format_bytes, format_flops, format_percent, format_seconds

if TYPE_CHECKING:
    from lowtide.planning.plan import Plan
    from lowtide.planning.step import Op, Step

WIDTH = 1100  # of the pictures, in their own units
MOST_ROWS = 400  # of modules: a table beyond that is of no use to anybody
MOVING = (Kind.KEPT, Kind.RECOMPUTED, Kind.TRANSIENT)  # what a plan has a say in
AT_PEAK = 12  # blocks that are named,
SMALLEST = 1e-3  # if they are at least this share of all


def page(plan: Plan, curve: Points | None = None) -> str:
    """The whole file. `curve` is drawn with the plan on it if it is given."""
    step = plan.step
    planned, baseline = layers_of(step, plan), without_plan(step)
    columns = columns_of(planned, baseline, WIDTH) if step.n_moments else Columns([], [], [], [])
    name = escape(title(step, 200))
    css = _asset("pictures.css") + _asset("page.css")
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>Plan for {name}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<link rel="icon" href="data:,"><style>{css}</style></head><body class="lowtide"><main>',
        f'<header><div><h1>{name}</h1><p class="soft">{escape(_below_title(step))}</p></div>',
        '<button id="theme" type="button">light / dark</button></header>',
        _cards(plan, planned),
        _section("Memory over the step", _timeline(planned, baseline, columns)),
        _section("The plan along the network", _network(plan)),
        _section("Memory against time", _tradeoff(plan, curve)) if curve else "",
        _section("What is there at the peak", _at_peak(plan)),
        _section("Modules", _modules(plan, planned)),
        _section("How it was planned", _facts(plan, curve)),
        '</main><div id="tip" class="tip" hidden></div>',
        f'<script type="application/json" id="data">{_data(plan, planned, columns)}</script>',
        f"<script>{_asset('page.js')}</script></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _asset(name: str) -> str:
    return files("lowtide.report").joinpath("assets", name).read_text(encoding="utf-8")


def _section(heading: str, content: str) -> str:
    return f"<section><h2>{escape(heading)}</h2>{content}</section>"


def _below_title(step: Step) -> str:
    meta = step.meta
    made = [f"{len(step.ops):,} ops", f"traced on {meta['device']}" if meta.get("device") else ""]
    made += [
        f"torch {meta['torch']}" if meta.get("torch") else "",
        f"costs: {meta['costs']}" if meta.get("costs") else "",
    ]
    return ", ".join(part for part in made if part)


def _cards(plan: Plan, planned: Layers) -> str:
    step, standing = plan.step, plan.step.standing_bytes
    before = plan.baseline_peak_bytes
    where = f"; set by {place(step, planned.timeline.peak_moment)}" if step.n_moments else ""
    total = _ratio(plan.total_peak_bytes, before + standing)
    cards = [
        _card("Peak, everything in", _arrow(before + standing, plan.total_peak_bytes), total + where),
        _card("Peak above the start of the step", _arrow(before, plan.peak_bytes), _ratio(plan.peak_bytes, before)),
        _card("No plan can be below", format_bytes(plan.lower_bound_bytes + standing), _bound(plan)),
        _card("Added work", *_work(plan)),
    ]
    return f'<dl class="cards">{"".join(cards)}</dl>'


def _card(name: str, figure: str, note: str) -> str:
    return f'<div class="card"><dt>{escape(name)}</dt><dd>{figure}</dd><dd class="note">{escape(note)}</dd></div>'


def _arrow(before: int, after: int) -> str:
    return f'<span class="before">{format_bytes(before)} →</span> {format_bytes(after)}'


def _ratio(after: int, before: int) -> str:
    return f"{format_percent(after / before)} of the step without a plan" if before else ""


def _bound(plan: Plan) -> str:
    bound, step = plan.lower_bound_bytes, plan.step
    text = f"{format_bytes(bound)} above the start; "
    text += f"this plan is at {plan.peak_bytes / bound:.2f} times that; " if bound > 0 else ""
    return f"{text}set by {short_place(plan.bound_op)}" if plan.bound_op and step.n_moments else text.rstrip("; ")


def _work(plan: Plan) -> tuple[str, str]:
    step = plan.step
    if not plan.recompute_ops:
        return "none", "nothing is recomputed"
    flops = f"{plan.recompute_ops:,} op runs, {format_flops(plan.recompute_flops)}"
    share = f" ({format_percent(plan.recompute_flops / step.total_flops)} of the step)" if step.total_flops else ""
    if step.seconds:
        return f"+{format_percent(plan.slowdown)}", f"{format_seconds(plan.added_s)} a step; {flops}{share}"
    return f"+{format_percent(plan.slowdown)}", f"of the step's arithmetic; {flops}"


def _legend(kinds: Iterable[Kind], baseline: bool) -> str:
    items = [f'<li><i class="{css_class(k)}-colour"></i>{escape(k.value)}</li>' for k in kinds]
    if baseline:
        items.append('<li><i class="line"></i>without a plan</li>')
    return f'<ul class="legend">{"".join(items)}</ul>'


def _timeline(planned: Layers, baseline: Layers, columns: Columns) -> str:
    used = [kind for kind, row in planned.of.items() if any(row)]
    svg = timeline_svg(planned, baseline, columns if columns.shown else None, WIDTH)
    caption = (
        "From left to right, every op of the step and every time backward asks for a saved tensor. "
        "The pointer shows what is there; with the keyboard: arrow keys, and p for the peak."
    )
    return f"<figure>{_legend(used, True)}{svg}<figcaption>{caption}</figcaption></figure>"


def _network(plan: Plan) -> str:
    kept = '<li><i class="kept-colour"></i>kept from forward on</li>'
    dropped = '<li><i class="recomputed-colour"></i>dropped, recomputed in backward</li>'
    caption = "The ops of forward from left to right: bytes that autograd saves of each, and how often it runs again."
    if any(s.compressed_bytes for s in saved_storages(plan.step, plan.keep)):
        dropped += '<li><i class="coded-colour"></i>compressed away</li>'
    legend = f'<ul class="legend">{kept}{dropped}</ul>'
    return f"<figure>{legend}{network_svg(plan, WIDTH)}<figcaption>{caption}</figcaption></figure>"


def _at_peak(plan: Plan) -> str:
    """The largest blocks at the peak by name; parameters and the like, which no plan changes, are added up by kind."""
    step = plan.step
    past = history(step, plan.keep, plan.runs)
    alive = past.alive(past.peak()[1])
    total = sum(past.blocks[b].nbytes for b in alive)
    named = sorted((b for b in alive if past.blocks[b].kind in MOVING), key=lambda b: (-past.blocks[b].nbytes, b))
    rows: list[tuple[Kind | None, str, int]] = []
    shown = [b for b in named[:AT_PEAK] if past.blocks[b].nbytes >= total * SMALLEST]
    for b in shown:
        block = past.blocks[b]
        op = step.ops[block.op] if block.op >= 0 else None
        where = f"{short_op(op.name)} of {op.module or 'the model or the loss'}" if op else "there before the step"
        where += ", workspace" if block.storage < 0 else ""
        where += " (backward)" if op and op.phase.value == "backward" else ""
        rows.append((block.kind, where, block.nbytes))
    if named[len(shown) :]:
        size = sum(past.blocks[b].nbytes for b in named[len(shown) :])
        rows.append((None, f"{len(named) - len(shown):,} smaller ones", size))
    for kind in Kind:
        blocks = [b for b in alive if past.blocks[b].kind is kind]
        if kind not in MOVING and blocks:
            rows.append((kind, f"all {kind.value}", sum(past.blocks[b].nbytes for b in blocks)))
    body = "".join(
        f'<tr><td>{_swatch(kind)}{escape(where)}</td><td class="text">{_moving(kind)}</td>'
        f"<td>{format_bytes(size)}</td></tr>"
        for kind, where, size in rows
    )
    foot = f'<tfoot><tr><td>all</td><td></td><td id="all-at-peak">{format_bytes(total)}</td></tr></tfoot>'
    return f'<div class="scroll"><table><tbody>{body}</tbody>{foot}</table></div>'


def _moving(kind: Kind | None) -> str:
    return kind.value if kind in MOVING and kind else ""


def _swatch(kind: Kind | None) -> str:
    return f'<span class="swatch {css_class(kind)}-colour"></span>' if kind else ""


def _tradeoff(plan: Plan, curve: Points) -> str:
    svg = tradeoff_svg(curve, Point(plan.total_peak_bytes, plan.slowdown), WIDTH, 300)
    costs = f" Costs: {curve.costs}." if curve.costs else ""
    caption = f"Other plans of the step: what each budget costs in time.{costs}"
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _modules(plan: Plan, planned: Layers) -> str:
    timed, coded = bool(plan.step.seconds), any(s.compressed_bytes for s in saved_storages(plan.step, plan.keep))
    heads = [
        "module",
        "at the peak",
        "saved",
        "kept",
        *(["compressed"] if coded else []),
        "recomputed",
        "op runs",
        "added FLOPs",
        *(["added time"] if timed else []),
    ]
    timeline = planned.timeline
    at_peak = timeline.by_module(timeline.peak_moment) if plan.step.n_moments else {}
    tables = {1: module_work(plan, 1, at_peak)}
    for d in range(2, depths(plan.step) + 1):
        rows = module_work(plan, d, at_peak)
        if len(rows) > MOST_ROWS:
            break
        if len(rows) > len(tables[max(tables)]):  # another depth that shows nothing new is left out
            tables[d] = rows
    shown = max((d for d, rows in tables.items() if len(rows) <= 60), default=1)
    buttons = "".join(
        f'<button type="button" data-depth-button="{d}" aria-pressed="{str(d == shown).lower()}">{d}</button>'
        for d in tables
    )
    bodies = "".join(
        f'<tbody data-depth="{d}"{"" if d == shown else " hidden"}>'
        f"{''.join(_row(r, timed, coded) for r in rows)}</tbody>"
        for d, rows in tables.items()
    )
    rows = tables[1]
    total = ModuleWork(
        "all",
        sum(r.peak_bytes for r in rows),
        sum(r.saved_bytes for r in rows),
        sum(r.kept_bytes for r in rows),
        sum(r.recompute_ops for r in rows),
        sum(r.recompute_flops for r in rows),
        sum(r.added_s for r in rows),
        sum(r.compressed_bytes for r in rows),
    )
    head = "".join(f'<th scope="col"><button type="button">{h}</button></th>' for h in heads)
    said = "What each module has in memory at the peak, and its activations that autograd saves: kept or recomputed."
    note = f'<p class="soft">{said}</p>'
    return (
        f'{note}<div class="depths">names in a path, at most: {buttons}</div><div class="scroll">'
        f'<table class="sortable" id="modules"><thead><tr>{head}</tr></thead>{bodies}'
        f"<tfoot>{_row(total, timed, coded)}</tfoot></table></div>"
    )


def _row(r: ModuleWork, timed: bool, coded: bool) -> str:
    cells: list[tuple[float, str]] = [
        (r.peak_bytes, format_bytes(r.peak_bytes)),
        (r.saved_bytes, format_bytes(r.saved_bytes)),
        (r.kept_bytes, format_bytes(r.kept_bytes)),
        *([(r.compressed_bytes, format_bytes(r.compressed_bytes))] if coded else []),
        (r.dropped_bytes, format_bytes(r.dropped_bytes)),
        (r.recompute_ops, f"{r.recompute_ops:,}"),
        (r.recompute_flops, format_flops(r.recompute_flops) if r.recompute_flops else "0"),
    ]
    if timed:
        cells.append((r.added_s, format_seconds(r.added_s) if r.added_s else "0"))
    values = "".join(f'<td data-value="{value}">{text}</td>' for value, text in cells)
    return f"<tr><td>{escape(r.module or 'the model itself')}</td>{values}</tr>"


def _facts(plan: Plan, curve: Points | None) -> str:
    step = plan.step
    rows = [
        ("solver", plan.solver),
        ("outcome", plan.status),
        ("forward, backward, optimizer", _phases(step)),
        ("stood before the step", format_bytes(step.standing_bytes)),
        ("what no plan can change peaks at", format_bytes(max(step.base_bytes, default=0))),
        ("digest of the step", step.digest),
        ("memory against time", "" if curve else "not drawn: lowtide report --curve plans for other budgets, too"),
    ]
    if step.meta.get("real"):
        rows.append(("traced by running it for real", str(step.meta["real"])))
    body = "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in rows if b)
    return f'<dl class="facts">{body}</dl>'


def _where(op: Op) -> str:
    if op.phase is Phase.OPTIMIZER:
        return op.phase.value
    return op.module or "the model or the loss"


def _phases(step: Step) -> str:
    counts: dict[str, int] = {}
    for op in step.ops:
        counts[op.phase.value] = counts.get(op.phase.value, 0) + 1
    return ", ".join(f"{n:,} {name} ops" for name, n in counts.items())


def _data(plan: Plan, planned: Layers, columns: Columns) -> str:
    """What the script shows. Columns as the picture has them; names once each."""
    step, shown = plan.step, columns.shown
    names: dict[str, int] = {}

    def name(text: str) -> int:
        return names.setdefault(text, len(names))

    ops = [step.ops[w] if w >= 0 else step.ops[step.saves[~w].op] for w in (step.moments[m] for m in shown)]
    timeline: dict[str, Any] = {
        "width": WIDTH,
        "edges": [round(x, 1) for x in columns.edges],
        "moment": shown,
        "phase": [phase_at(step, m).value for m in shown],
        "op": [name(short_op(op.name)) for op in ops],
        "where": [name(_where(op)) for op in ops],
        "runs": [len(plan.runs.get(m, ())) for m in shown],
        "layers": [
            {"name": kind.value, "colour": css_class(kind), "bytes": [row[m] for m in shown]}
            for kind, row in planned.of.items()
            if any(row)
        ],
        "total": [planned.total(m) for m in shown],
        "baseline": columns.baseline,
        "peak": columns.of(planned.timeline.peak_moment) if shown else 0,
    }
    data = {
        "peak_bytes": plan.peak_bytes,
        "total_peak_bytes": plan.total_peak_bytes,
        "baseline_peak_bytes": plan.baseline_peak_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "names": list(names),
        "timeline": timeline,
    }
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")  # a name cannot end the script
