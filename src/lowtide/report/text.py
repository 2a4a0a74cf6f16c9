"""Step, plan, timeline and verdict as text that fits a screen. These are their reprs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from lowtide.planning.compress import SHAPE
from lowtide.report.at_peak import at_peak_tables
from lowtide.report.columns import shorten
from lowtide.report.curve import curve
from lowtide.report.document import WIDTH, Document, Facts, Lines, Mood, Part, Picture, Table, plain
from lowtide.report.modules import ModuleBytes, module_table
from lowtide.report.names import place, short_place
from lowtide.units import format_bytes, format_flops, format_percent, format_seconds

if TYPE_CHECKING:
    from lowtide.planning.plan import Plan
    from lowtide.planning.simulate import Timeline
    from lowtide.planning.step import Step

_ROWS = 6  # modules in a table: a report is to fit a screen


def title(step: Step, width: int = WIDTH - 12) -> str:
    """What was traced, in one line of at most `width` characters: model, inputs, optimizer."""
    meta = step.meta
    name = str(meta.get("name") or meta.get("model") or "a step")
    inputs = meta.get("inputs") or ""
    text = inputs if isinstance(inputs, str) else ", ".join(map(str, inputs))
    optimizer = f", {meta['optimizer']}" if meta.get("optimizer") else ""
    return shorten(f"{name} on {text}{optimizer}" if text else f"{name}{optimizer}", width)


def describe_step(step: Step) -> str:
    """`step_document` as text."""
    return plain(step_document(step))


def step_document(step: Step) -> Document:
    """The size of a step: ops, FLOPs, bytes by category, and what no plan can change."""
    phases = Counter(op.phase.value for op in step.ops)
    saved = {step.values[s.value].storage for s in step.saves if not step.is_external(s.value)}
    saved_bytes = sum(step.storages[s].nbytes for s in saved)
    rows = [
        ["ops", ", ".join(f"{n:,} {phase}" for phase, n in phases.items()) or "none"],
        ["work", f"{format_flops(step.total_flops)}, {format_flops(step.forward_flops)} of it forward"],
        ["saved for backward", f"{format_bytes(saved_bytes)} in {len(saved):,} storages"],
        ["peak of what no plan can change", format_bytes(max(step.base_bytes, default=0))],
        ["allocated before the step", format_bytes(step.standing_bytes)],
    ]
    if step.meta.get("real"):
        rows.append(["traced by running it for real", str(step.meta["real"])])
    pinned = Counter(op.pinned for op in step.ops[: step.n_forward] if op.pinned)
    if pinned:
        rows.append(["ops that cannot be replayed", f"{sum(pinned.values()):,} ({pinned.most_common(1)[0][0]})"])
    categories = [[c.value, format_bytes(n)] for c, n in step.category_bytes.items() if n]
    heads = ["all storages, by what they are for (not all at once)", ""]
    return Document(f"Step of {title(step)}", [Facts(rows), Table([heads, *categories])])


def describe_plan(plan: Plan) -> str:
    """`plan_document` as text."""
    return plain(plan_document(plan))


def plan_document(plan: Plan) -> Document:
    """Before and after, the bound and what sets it, the added work, what is there at the peak, and what is kept, by
    module."""
    before = plan.total_peak_bytes - plan.peak_bytes + plan.baseline_peak_bytes
    table = [
        ["", "no plan", "planned", ""],
        ["peak of the step", *_pair(plan.baseline_peak_bytes, plan.peak_bytes)],
        ["peak with all that stood before it", *_pair(before, plan.total_peak_bytes)],
        ["no plan can be below", "", format_bytes(plan.lower_bound_bytes), _times(plan)],
    ]
    pair, where = at_peak_tables(plan)
    rows = [
        *where,
        ["the bound is set by", shorten(short_place(plan.bound_op), 58) or "nothing"],
        *_work(plan),
        *_compressed(plan),
        ["solver", f"{plan.solver}: {plan.status}" if plan.status else plan.solver],
    ]
    parts: list[Part] = [Table(table), Facts(rows), pair, _modules(plan.step, plan.keep)]
    return Document(f"Plan for {title(plan.step)}", parts)


def _pair(before: int, after: int) -> list[str]:
    return [format_bytes(before), format_bytes(after), format_percent(after / before) if before else ""]


def _times(plan: Plan) -> str:
    if plan.lower_bound_bytes <= 0:
        return ""
    return f"peak is {plan.peak_bytes / plan.lower_bound_bytes:.2f}x it"


def _compressed(plan: Plan) -> list[list[str]]:
    """What of the saved values is held as codes, or as a shape."""
    step = plan.step
    codes = [c for c in step.codes if c.value in plan.keep]
    shapes = sum(len(c.saves) for c in step.codes if c.codec == SHAPE)
    rows: list[list[str]] = []
    if codes:
        whole, small = sum(step.nbytes(c.of) for c in codes), sum(step.nbytes(c.value) for c in codes)
        count = f"{len(codes):,} value{'s' if len(codes) != 1 else ''}"
        rows.append(["compressed", f"{count} of {format_bytes(whole)} held as {format_bytes(small)}"])
    if shapes:
        rows.append(["held as a shape", f"{shapes:,} saved tensor{'s' if shapes != 1 else ''}"])
    return rows


def _work(plan: Plan) -> list[list[str]]:
    step = plan.step
    if not plan.recompute_ops:
        return [["added work", "none: nothing is recomputed"]]
    work = f"{plan.recompute_ops:,} op runs, {format_flops(plan.recompute_flops)}"
    if step.forward_flops:
        work += f" ({format_percent(plan.recompute_flops / step.forward_flops)} of forward)"
    rows = [["added work", work]]
    if step.seconds:
        costs = f" ({step.meta['costs']})" if step.meta.get("costs") else ""
        rows.append(
            ["added time", f"{format_seconds(plan.added_s)}, {format_percent(plan.slowdown)} of the step{costs}"]
        )
    return rows


def _modules(step: Step, keep: frozenset[int]) -> Part:
    table = module_table(step, keep, _ROWS)
    if not table:
        return Lines(["Autograd saves no activation in this step: there is nothing to plan."])
    coded = any(row.compressed_bytes for row in table)
    rows = [["activations of", "saved", "kept", *(["compressed"] if coded else []), "recomputed"]]
    sums = ModuleBytes(
        "all",
        sum(r.saved_bytes for r in table),
        sum(r.kept_bytes for r in table),
        sum(r.compressed_bytes for r in table),
    )
    for row in [*table, sums] if len(table) > 1 else table:
        sizes = [row.saved_bytes, row.kept_bytes, *([row.compressed_bytes] if coded else []), row.dropped_bytes]
        rows.append([shorten(row.module or "the model itself", 32), *map(format_bytes, sizes)])
    return Table(rows)


def describe_timeline(timeline: Timeline) -> str:
    """`timeline_document` as text."""
    return plain(timeline_document(timeline))


def timeline_document(timeline: Timeline) -> Document:
    """The curve of memory over the step, where its peak is, and what the bytes at the peak are for."""
    step, m = timeline.step, timeline.peak_moment
    if not timeline.level_bytes:
        return Document(f"Timeline of {title(step)}: an empty step", [])
    at_peak = {c: n for c, n in timeline.by_category(m).items() if n}
    rows = [
        ["peak of the step", f"{format_bytes(timeline.peak_bytes)}, in {shorten(place(step, m), 90)}"],
        ["peak with all that stood before it", format_bytes(timeline.total_peak_bytes)],
        ["no plan changes of it", format_bytes(step.base_bytes[m])],
        ["held since forward", format_bytes(timeline.kept_bytes[m])],
        ["recomputed", format_bytes(timeline.recomputed_bytes[m])],
    ]
    categories = [["at the peak, by what it is for", ""], *([c.value, format_bytes(n)] for c, n in at_peak.items())]
    picture = Picture(curve(step, timeline.level_bytes, width=WIDTH - 12))
    return Document(f"Timeline of {title(step)}", [picture, Facts(rows), Table(categories)])


class DifferenceLike(Protocol):
    """What is read of a difference."""

    @property
    def sentence(self) -> str: ...


class VerdictLike(Protocol):
    """What is read of a `Verdict`; its class is in the half of the library that needs torch."""

    @property
    def ok(self) -> bool: ...
    @property
    def compared(self) -> int: ...
    @property
    def tolerance(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def differences(self) -> Sequence[DifferenceLike]: ...
    @property
    def peak_bytes(self) -> int: ...
    @property
    def baseline_peak_bytes(self) -> int: ...
    @property
    def predicted_peak_bytes(self) -> int: ...
    @property
    def predicted_baseline_peak_bytes(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def baseline_seconds(self) -> float: ...


def describe_verdict(verdict: VerdictLike, differences: int = 10) -> str:
    """`verdict_document` as text."""
    return plain(verdict_document(verdict, differences))


def verdict_document(verdict: VerdictLike, differences: int = 10) -> Document:
    """Whether the planned step is the plain one to the bit, and what both took. At most `differences` of them."""
    v = verdict
    table = [
        ["", "no plan", "planned", ""],
        ["measured peak of the step", *_pair(v.baseline_peak_bytes, v.peak_bytes)],
        ["predicted peak", *_pair(v.predicted_baseline_peak_bytes, v.predicted_peak_bytes)],
        [
            "prediction is off by",
            _off(v.predicted_baseline_peak_bytes, v.baseline_peak_bytes),
            _off(v.predicted_peak_bytes, v.peak_bytes),
        ],
        ["time of the step", *_times_of(v)],
    ]
    lines: list[str] = []
    if v.ok and v.tolerance:
        headline = "The planned step agrees with the plain one as well as two plain ones do."
    elif v.ok:
        headline = "The planned step is identical to the plain one, bit for bit."
    else:
        n = len(v.differences)
        headline = f"The planned step DIFFERS from the plain one in {n:,} place{'s' if n != 1 else ''}:"
        lines += [f"  {d.sentence}" for d in v.differences[:differences]]
        if n > differences:
            lines.append(f"  ... and {n - differences:,} more")
    steps = f"{v.steps} step{'s' if v.steps != 1 else ''} each way on {v.device}"
    lines.append(f"{v.compared:,} tensors and states compared, {steps}")
    if v.tolerance:
        lines.append(v.tolerance)
    return Document(headline, [Lines(lines), Table(table)], Mood.GOOD if v.ok else Mood.BAD)


def _off(predicted: int, measured: int) -> str:
    return f"{100 * (predicted / measured - 1):+.1f} %" if measured else "-"


def _times_of(v: VerdictLike) -> list[str]:
    change = f"{100 * (v.seconds / v.baseline_seconds - 1):+.1f} %" if v.baseline_seconds else ""
    return [format_seconds(v.baseline_seconds), format_seconds(v.seconds), change]
