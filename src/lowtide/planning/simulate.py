"""simulate: `Step`, `Plan` -> `Timeline`, the bytes at every moment and the peak."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lowtide.planning.compress import code_seconds
from lowtide.planning.plan import Plan
from lowtide.planning.schedule import Schedule, handed_until, schedule
from lowtide.planning.step import Category, Step

FORMAT = 1

Lists = tuple[Iterable[int], Mapping[int, tuple[int, ...]]]  # keep, runs


@dataclass(frozen=True, repr=False)
class Timeline:
    """The memory of a step under a plan, or without one. All per-moment tuples have length `step.n_moments`; within
    an unpack moment they tell its highest point.

    Attributes:
        step: what was simulated.
        peak_bytes: highest level, above what was allocated when the step began.
        peak_moment: the first moment at which it is reached.
        level_bytes: per moment everything that was allocated since the step began.
        kept_bytes: per moment the part that only the plan (or autograd, without one) holds since forward.
        recomputed_bytes: per moment the part that was recomputed, with what running ops need besides.
        recompute_flops, recompute_ops: what the plan runs in addition.
        added_s: the seconds that takes, with codes made and read; 0 if the step has no costs.
        keep, runs: the lists that were simulated.
    """

    step: Step
    peak_bytes: int
    peak_moment: int
    level_bytes: tuple[int, ...]
    kept_bytes: tuple[int, ...]
    recomputed_bytes: tuple[int, ...]
    recompute_flops: int
    recompute_ops: int
    added_s: float = 0.0
    keep: frozenset[int] = frozenset()
    runs: Mapping[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])

    @property
    def standing_bytes(self) -> int:
        return self.step.standing_bytes

    @property
    def total_peak_bytes(self) -> int:
        """The peak with everything in that was allocated before the step began."""
        return self.peak_bytes + self.step.standing_bytes

    def by_category(self, moment: int) -> dict[Category, int]:
        """Bytes of each category at a moment, standing storages included; they add up to `level_bytes[moment]` plus
        `standing_bytes`. What is held for backward, kept or recomputed, is `ACTIVATION`, workspace `TRANSIENT`."""
        total = dict.fromkeys(Category, 0)
        for s in self.step.storages:
            if s.birth < 0 or s.birth <= moment < s.death:
                total[s.category] += s.nbytes
        total[Category.ACTIVATION] += self.kept_bytes[moment] + self.recomputed_bytes[moment]
        what = self.step.moments[moment]
        if what >= 0 and self.step.workspace_bytes:
            total[Category.TRANSIENT] += self.step.workspace_bytes[what]
        return total

    def by_module(self, moment: int) -> dict[str, int]:
        """Bytes per module at a moment, most first, standing storages included; they add up as those by category do.
        '' is the model or the loss itself (`planning.holders`)."""
        from lowtide.planning.holders import by_module

        return by_module(self, moment)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "kind": "lowtide.timeline",
            "digest": self.step.digest,
            "peak_bytes": self.peak_bytes,
            "peak_moment": self.peak_moment,
            "total_peak_bytes": self.total_peak_bytes,
            "standing_bytes": self.standing_bytes,
            "level_bytes": self.level_bytes,
            "kept_bytes": self.kept_bytes,
            "recomputed_bytes": self.recomputed_bytes,
            "recompute_flops": self.recompute_flops,
            "recompute_ops": self.recompute_ops,
            "added_s": self.added_s,
        }

    def __repr__(self) -> str:
        from lowtide.report.text import describe_timeline

        return describe_timeline(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from lowtide.report.notebook import timeline_html

        return timeline_html(self)


def describe_moment(step: Step, moment: int) -> str:
    """Where a moment is, for people: `'backward of layer1.0.bn3 (aten.native_batch_norm_backward)'`."""
    if not 0 <= moment < step.n_moments:
        return "nowhere"
    what = step.moments[moment]
    op = step.ops[what] if what >= 0 else step.ops[step.saves[~what].op]
    phase = op.phase.value if what >= 0 else "backward"
    where = op.module or "the model or the loss"
    return f"optimizer ({op.name})" if phase == "optimizer" else f"{phase} of {where} ({op.name})"


def simulate(step: Step, plan: Plan | Lists | None = None) -> Timeline:
    """Count the bytes of `step` at every moment.

    Args:
        plan: a plan of this step, or its two lists (keep, runs). None: every saved value is kept, as PyTorch does.

    Raises:
        PlanError: if the plan wants a value that nothing makes (`check` says more).
    """
    keep: frozenset[int]
    runs: Mapping[int, tuple[int, ...]]
    if plan is None:
        keep, runs = keep_all(step), {}
    elif isinstance(plan, Plan):
        keep, runs = plan.keep, plan.runs
    else:
        keep, runs = frozenset(plan[0]), plan[1]
    counted = _count(step, keep, schedule(step, keep, runs))
    return replace(counted, keep=keep, runs=runs, added_s=counted.added_s + code_seconds(step, keep, runs))


def keep_all(step: Step) -> frozenset[int]:
    """What PyTorch keeps: every saved value that is not there anyway."""
    return frozenset(s.value for s in step.saves if not step.is_external(s.value))


class _Kept:
    """What is held since forward, beyond natural lives. Counted per storage: versions share one."""

    def __init__(self, step: Step, keep: frozenset[int], order: Schedule) -> None:
        self.step = step
        # storage -> moment from which on no handle holds it, moment of the last run that reads it (-1: none), start.
        self.handle: dict[int, int] = {}
        self.source: dict[int, int] = {}
        born: dict[int, int] = {}
        last_read = {v: e.moment for e in order.events for a in e.actions for v in a.free if v in keep}
        for v in keep:
            value = step.values[v]
            if step.storages[value.storage].external:
                continue
            s = value.storage
            release = max((step.saves[i].release for i in step.saves_of.get(v, ())), default=0)
            self.handle[s] = max(self.handle.get(s, 0), release)
            self.source[s] = max(self.source.get(s, -1), last_read.get(v, -1))
            m = step.ops[value.op].moment if value.op >= 0 else 0
            born[s] = min(born.get(s, m), m)
        change = [0] * (step.n_moments + 1)
        for s, release in self.handle.items():
            start = max(step.storages[s].death, born[s])
            end = min(max(release, self.source[s] + 1), step.n_moments)
            if end > start:
                change[start] += step.storages[s].nbytes
                change[end] -= step.storages[s].nbytes
        self.change = change

    def freed(self, value: int, moment: int) -> int:
        """Bytes that come free as the tape lets go of a source in the middle of `moment`."""
        s = self.step.values[value].storage
        storage = self.step.storages[s]
        if storage.external or self.source[s] != moment or self.handle[s] > moment or storage.death > moment:
            return 0
        return storage.nbytes


def _count(step: Step, keep: frozenset[int], order: Schedule) -> Timeline:
    kept = _Kept(step, keep, order)
    base = step.base_bytes
    nbytes = [0 if s.external else s.nbytes for s in step.storages]
    size = [nbytes[v.storage] for v in step.values]
    ops, codes = step.ops, step.code_values
    level, kept_at, recomputed_at = list(base), [0] * step.n_moments, [0] * step.n_moments
    releases = [0] * (step.n_moments + 1)  # bytes that the graph's handles let go of at a moment
    held_until: dict[int, int] = {}  # recomputed value, still held by the tape -> until when handles hold it, too
    flops = n_ops = 0
    added_s, seconds = 0.0, step.seconds
    events = iter(order.events)
    event = next(events, None)
    kept_now = recomputed = 0
    for m in range(step.n_moments):
        kept_now += kept.change[m]
        recomputed -= releases[m]
        top, top_kept = recomputed, kept_now
        if event is not None and event.moment == m:
            k = kept_now
            for o, retain, consume, free in event.actions:
                op = ops[o]
                reused = sum(size[v] for v in consume)
                made = sum(size[w] for w in op.writes if w not in codes or w in retain)  # codes only if wanted
                high = recomputed + step.replay_scratch_bytes(o) + made - reused
                if high + k > top + top_kept:
                    top, top_kept = high, k
                recomputed += sum(size[w] for w in retain) - reused
                for w in retain:
                    held_until[w] = 0
                for v in consume:
                    del held_until[v]
                for v in free:
                    if v in keep:
                        k -= kept.freed(v, m)
                        continue
                    until = held_until.pop(v)
                    if until > m:
                        releases[min(until, step.n_moments)] += size[v]
                    else:
                        recomputed -= size[v]
                flops += op.flops
                n_ops += 1
                added_s += seconds[o] if seconds else 0.0
            if recomputed + k > top + top_kept:
                top, top_kept = recomputed, k
            v = step.saves[event.save].value
            if v in held_until:
                until = handed_until(step, event.save, step.saves[event.save].uses.index(m))
                until = max(until, held_until[v])
                if event.ends_hold:
                    del held_until[v]
                    releases[min(until, step.n_moments)] += size[v]
                else:
                    held_until[v] = until
            event = next(events, None)
        level[m] += top + top_kept
        kept_at[m] = top_kept
        recomputed_at[m] = top
    peak = max(level, default=0)
    return Timeline(
        step=step,
        peak_bytes=peak,
        peak_moment=level.index(peak) if level else 0,
        level_bytes=tuple(level),
        kept_bytes=tuple(kept_at),
        recomputed_bytes=tuple(recomputed_at),
        recompute_flops=flops,
        recompute_ops=n_ops,
        added_s=added_s,
    )
