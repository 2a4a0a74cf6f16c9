"""bound: bytes below which no plan of a step can peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from lowtide.planning.schedule import handed_until
from lowtide.planning.simulate import describe_moment
from lowtide.planning.step import Step


@dataclass(frozen=True)
class Bound:
    """A lower bound on the peak of every plan.

    Attributes:
        bytes: above what was allocated when the step began.
        moment: where it is needed.
        op: the op at that moment; for an unpack, the forward op that saved the tensor. -1 for an empty step.
    """

    bytes: int
    moment: int
    op: int

    def describe(self, step: Step) -> str:
        """What sets the bound: `'backward of layer1.0.bn3 (aten.native_batch_norm_backward)'`."""
        return describe_moment(step, self.moment) if self.op >= 0 else ""


def bound(step: Step) -> Bound:
    """The op-level bound: max over moments of (natural bytes + what backward certainly holds beyond them).

    It holds for every plan without compression or offloading, since at moment m

    * every storage that is naturally alive is allocated: `step.base_bytes[m]`;
    * a saved value that backward was handed and has not let go of (`handed_until`) is in memory, be it kept or
      recomputed. It needs bytes of its own unless it is external or its own storage is naturally alive and still
      holds this version. Values are counted once each, and two values never share bytes here: the content of two
      versions of one storage cannot both be in it;
    * a pinned value that backward uses at all cannot come back once it is gone, so it is held from its natural death
      to its last release.

    A recomputed value never lives in a natural storage, so the three add up. Codes that stand for values
    (`planning.compress`) are not counted, only what is made of them. Linear time.
    """
    n = step.n_moments
    level = certain_levels(step, [s.nbytes for s in step.storages])
    if not level:
        return Bound(0, 0, -1)
    peak = max(level)
    # An op says more than the unpack before it.
    moment = min((m for m in range(n) if level[m] == peak), key=lambda m: (step.moments[m] < 0, m))
    what = step.moments[moment]
    return Bound(peak, moment, what if what >= 0 else step.saves[~what].op)


def intact_until(step: Step, v: int) -> int:
    """The moment from which on the storage of value `v` is not naturally alive with this version in it."""
    value = step.values[v]
    death = step.storages[value.storage].death
    return min(death, step.ops[value.overwritten].moment) if value.overwritten >= 0 else death


def certain_spans(step: Step, v: int) -> list[tuple[int, int]]:
    """When backward certainly has value `v`, that is not external, in memory: from, until. Sorted; they may overlap."""
    saves = step.saves_of.get(v, ())
    spans = sorted((u, handed_until(step, s, k)) for s in saves for k, u in enumerate(step.saves[s].uses))
    if spans and step.is_pinned(v):
        return [(step.storages[step.values[v].storage].death, max(step.saves[s].release for s in saves))]
    return spans


def certain_levels(step: Step, nbytes: Sequence[int], late: int = 0) -> list[int]:
    """Per moment the bytes that every plan has in memory: `step.base_bytes`, and values while `certain_spans` says so
    and their own storages do not hold them. Linear time.

    Args:
        nbytes: per storage, what a value of it counts.
        late: spans begin so many moments later: 1 for what is there before an unpack is answered.
    """
    n = step.n_moments
    change = [0] * (n + 1)
    for v in step.saves_of:
        if step.is_external(v) or v in step.code_values:
            continue
        last = step.storages[step.values[v].storage].death if step.is_pinned(v) else intact_until(step, v)
        for start, end in certain_spans(step, v):
            start, end = max(start + late, last), min(end, n)
            if end > start:
                change[start] += nbytes[step.values[v].storage]
                change[end] -= nbytes[step.values[v].storage]
                last = end
    return [b + c for b, c in zip(step.base_bytes, accumulate(change[:-1]), strict=True)]
