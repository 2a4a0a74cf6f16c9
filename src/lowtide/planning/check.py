"""check: `Step`, keep, runs -> what is wrong with them. Knows no solver and no schedule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from lowtide.planning.step import Step


class Rule(str, Enum):
    """The rules of plans. The values say what a plan must do."""

    IDS = "ids exist in the step"
    MOMENT = "runs stand at unpacks"
    FORWARD = "only forward ops run again"
    PINNED_RUN = "pinned ops do not run again"
    PINNED_DROP = "pinned values that backward asks for are kept"
    OVERWRITTEN = "kept values are not overwritten before their last use"
    READS = "runs read what is there: external, kept or recomputed before"
    ANSWER = "every unpack can be answered: external, kept or recomputed before"


@dataclass(frozen=True)
class Violation:
    """One broken rule.

    Attributes:
        rule: which.
        message: what is wrong and where, in one sentence.
        moment, op, value: where, as far as it applies, else None.
    """

    rule: Rule
    message: str
    moment: int | None = None
    op: int | None = None
    value: int | None = None

    def __str__(self) -> str:
        return self.message


def check(step: Step, keep: Iterable[int], runs: Mapping[int, tuple[int, ...]]) -> list[Violation]:
    """All violations of the rules of plans, in the order of the step; empty for a plan that can be carried out.

    What matters is that everything can be computed: a value that was recomputed once counts as present from then on,
    since whoever carries out the plan holds it until its last need.

    Args:
        keep: ids of values held from forward on.
        runs: unpack moment -> forward op ids to run before it is answered, in order.
    """
    kept = set(keep)
    found = list(_ids(step, kept, runs))
    if found:
        return found  # what follows indexes with them
    found += _keepable(step, kept)
    found += _pinned(step, kept)
    made: set[int] = set()
    for m, what in enumerate(step.moments):
        if what >= 0:
            continue
        for o in runs.get(m, ()):
            found += _run(step, o, m, kept, made)
            made.update(step.ops[o].writes)
        value = step.saves[~what].value
        if not _present(step, value, m, kept, made):
            by = step.ops[step.saves[~what].op]
            found.append(
                Violation(
                    Rule.ANSWER,
                    f"the backward of {_op(by.name, by.module)} asks at moment {m} for value {value}"
                    f"{_maker(step, value)}, which is neither kept nor recomputed before",
                    moment=m, op=step.saves[~what].op, value=value,
                )
            )  # fmt: skip
    return found


def _ids(step: Step, kept: set[int], runs: Mapping[int, tuple[int, ...]]) -> Iterator[Violation]:
    for v in sorted(kept):
        if not 0 <= v < len(step.values):
            text = f"the plan keeps value {v}, but the step has values 0 to {len(step.values) - 1}"
            yield Violation(Rule.IDS, text, value=v)
    for m, ops in sorted(runs.items()):
        if not 0 <= m < step.n_moments:
            text = f"the plan has runs at moment {m}, but the step has moments 0 to {step.n_moments - 1}"
            yield Violation(Rule.IDS, text, moment=m)
            continue
        if step.moments[m] >= 0:
            name = step.ops[step.moments[m]].name
            text = f"the plan has runs at moment {m}, which is the op {name}: runs stand at unpacks"
            yield Violation(Rule.MOMENT, text, moment=m)
        for o in ops:
            if not 0 <= o < len(step.ops):
                text = f"the plan runs op {o} at moment {m}, but the step has ops 0 to {len(step.ops) - 1}"
                yield Violation(Rule.IDS, text, moment=m, op=o)


def _keepable(step: Step, kept: set[int]) -> Iterator[Violation]:
    for v in sorted(kept):
        over = step.values[v].overwritten
        if over < 0:
            continue
        # A backward inside forward may have been the last to ask, before the overwriting.
        last = max((u for s in step.saves_of.get(v, ()) for u in step.saves[s].uses), default=-1)
        if step.ops[over].moment <= last or (last < 0 and over < step.n_forward):
            by = step.ops[over]
            who = _op(by.name, by.module)
            text = f"the plan keeps value {v}{_maker(step, v)}, which {who} overwrites at moment {by.moment}"
            yield Violation(Rule.OVERWRITTEN, text, moment=by.moment, op=over, value=v)


def _pinned(step: Step, kept: set[int]) -> Iterator[Violation]:
    for v in sorted(step.saves_of):
        reason = step.is_pinned(v)
        if not reason or v in kept or step.is_external(v) or not any(step.saves[s].uses for s in step.saves_of[v]):
            continue
        text = f"the plan drops value {v}{_maker(step, v)}, which must be kept: {reason}"
        yield Violation(Rule.PINNED_DROP, text, op=step.values[v].op, value=v)


def _run(step: Step, o: int, m: int, kept: set[int], made: set[int]) -> Iterator[Violation]:
    op = step.ops[o]
    if o >= step.n_forward:
        text = f"the plan runs {_op(op.name, op.module)} at moment {m}, which is not a forward op"
        yield Violation(Rule.FORWARD, text, moment=m, op=o)
    elif op.pinned:
        text = f"the plan runs {_op(op.name, op.module)} at moment {m}, which must not run again: {op.pinned}"
        yield Violation(Rule.PINNED_RUN, text, moment=m, op=o)
    for v in op.reads:
        if not _present(step, v, m, kept, made):
            over = step.values[v].overwritten
            lost = f", and {step.ops[over].name} has overwritten it" if over >= 0 and step.values[v].op < 0 else ""
            text = (
                f"the plan runs {_op(op.name, op.module)} at moment {m}, which reads value {v}{_maker(step, v)}: "
                f"neither kept nor recomputed before{lost}"
            )
            yield Violation(Rule.READS, text, moment=m, op=o, value=v)


def _present(step: Step, v: int, m: int, kept: set[int], made: set[int]) -> bool:
    """Whether the content of value `v` can be read at moment `m`."""
    if v in made:
        return True
    value = step.values[v]
    if value.overwritten >= 0 and step.ops[value.overwritten].moment < m:
        return False
    written = value.op < 0 or step.ops[value.op].moment < m
    return written and (v in kept or step.storages[value.storage].external)


def _op(name: str, module: str) -> str:
    return f"{name} in {module}" if module else name


def _maker(step: Step, v: int) -> str:
    o = step.values[v].op
    return f" (of {_op(step.ops[o].name, step.ops[o].module)})" if o >= 0 else " (there before the step)"
