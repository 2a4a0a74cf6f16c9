"""The cases of tests/cases under `torch.utils.checkpoint`, around the regions that a person would wrap, and under a
Lowtide plan that drops everything it can. Every bit that two training steps leave behind is compared with the plain
step's.

    python -m benchmarks.cases_table [--markdown]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

import lowtide
from benchmarks.output import Limit, Report, parser
from tests.cases import CASES, Case, Example
from tests.outcome import Outcome, differences, train
from tests.plans import drop_everything

COLUMNS = ("case", "checkpoint, reentrant", "checkpoint, non-reentrant", "Lowtide", "ops recomputed")


def wrapped(case: Case, model: nn.Module, reentrant: bool) -> None:
    """Put `torch.utils.checkpoint` around the forward of the case's regions."""
    for name in case.regions(model):
        module = model.get_submodule(name)
        forward = module.forward

        def run(*args: Any, forward: Any = forward, **kwargs: Any) -> Any:
            return checkpoint(forward, *args, use_reentrant=reentrant, **kwargs)

        module.forward = run


def verdict(plain: Outcome, run: Callable[[], Outcome]) -> str:
    """'right', or what is wrong, in a few words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = run()
        except Exception as e:
            return f"raises {type(e).__name__}"
    kinds = dict.fromkeys(_kind(name) for name in differences(plain, found))
    return f"wrong: {', '.join(kinds)}" if kinds else "right"


def _kind(name: str) -> str:
    """`'step 0 grad blocks.1.weight'` -> `'grad'`."""
    words = name.split()
    return words[2] if words[0] == "step" else words[0]


def outcome(e: Example, region: Any = None) -> Outcome:
    more = {} if region is None else {"region": region}
    return train(e.model, e.args, e.losses, state=e.state, **more)


def by_hand(case: Case, plain: Outcome, reentrant: bool) -> str:
    def run() -> Outcome:
        e = case.make()
        wrapped(case, e.model, reentrant)
        return outcome(e)

    return verdict(plain, run)


def markdown(report: Report) -> str:
    lines = [" | ".join(COLUMNS), " | ".join(["---"] * len(COLUMNS))]
    lines += [" | ".join(str(row[c]) for c in COLUMNS) for row in report.rows]
    return "\n".join(f"| {line} |" for line in lines)


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    given = options.parse_args(argv)
    report = Report("cases", "Training steps that break naive checkpointing: bits against the plain step's", COLUMNS)
    for name, case in CASES.items():
        plain = outcome(case.make())
        e = case.make()
        plan = drop_everything(lowtide.trace(e.model, e.args, loss=lambda out, e=e: sum(e.losses(out))))
        report.add(
            **{
                "case": name,
                COLUMNS[1]: by_hand(case, plain, True),
                COLUMNS[2]: by_hand(case, plain, False),
                "Lowtide": verdict(
                    plain, lambda case=case, plan=plan: outcome(case.make(), lambda: lowtide.remat(plan))
                ),
                "ops recomputed": plan.recompute_ops,
            }
        )
    counts = {c: sum(row[c] == "right" for row in report.rows) for c in COLUMNS[1:4]}
    report.notes.append("right: " + "; ".join(f"{c} {n} of {len(report.rows)}" for c, n in counts.items()))
    report.limits.append(Limit("cases that Lowtide does not get right", len(report.rows) - counts["Lowtide"], 0))
    if given.markdown:
        print(markdown(report))
        print()
        print(report.notes[0])
        return 0 if all(x.kept for x in report.limits) else 1
    return report.finish(given.output)


if __name__ == "__main__":
    sys.exit(main())
