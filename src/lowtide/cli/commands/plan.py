"""`lowtide plan MODEL`: trace the step and plan it. Allocates no activation and needs no GPU."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from lowtide.cli.model_arguments import Call, add_model_arguments, load_call, running
from lowtide.cli.terminal import Report, Terminal
from lowtide.errors import TraceError
from lowtide.planning.compress import uncompressed
from lowtide.planning.simulate import simulate
from lowtide.report.at_peak import at_peak
from lowtide.report.text import plan_document
from lowtide.units import format_bytes

if TYPE_CHECKING:
    from lowtide.planning.plan import Plan
    from lowtide.planning.step import Step

T = TypeVar("T")

SUMMARY = "find the plan with the least peak memory, or with the least added time within a budget, for a training step"
EXAMPLES = [
    "lowtide plan torchvision:resnet50 --input 64x3x224x224",
    "lowtide plan torchvision:resnet50 --input 64x3x224x224 --budget 4GiB --device rtx4090",
    "lowtide plan hf:gpt2 --set n_layer=4 --input 8x512 --optimizer adamw -o plan.json",
    "lowtide plan my_model.py:make --set width=256 --input 32x256 --json",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_model_arguments(parser)
    add_budget_arguments(parser)
    parser.add_argument("--solver", default="auto", metavar="NAME", help="who plans; lowtide solvers lists them")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the plan to a file that lowtide.load reads")
    parser.add_argument("--json", action="store_true", help="print the plan's numbers as JSON")


def share(text: str) -> float | None:
    return None if text.lower() == "none" else float(text)


def add_budget_arguments(parser: argparse.ArgumentParser) -> None:
    """`--budget --budget-of --max-slowdown --device`."""
    group = parser.add_argument_group("memory and time")
    group.add_argument(
        "--budget",
        metavar="SIZE",
        help="least added time within this much memory: 10GiB, 60%% of the peak without a plan, or auto (what is free)",
    )
    group.add_argument(
        "--budget-of",
        choices=("total", "step"),
        default="total",
        help="whether the budget is for everything, parameters and optimizer state, too (default), or counts above "
        "what is there before the step",
    )
    group.add_argument(
        "--max-slowdown",
        type=share,
        default=0.34,
        metavar="SHARE",
        help="least peak at this much more time at most: 0.2 is 20 %%, none is no limit (default: one more forward)",
    )
    group.add_argument("--no-compress", action="store_true", help="hold no codes in the place of saved tensors")
    group.add_argument("--max-recompute", type=int, metavar="N", help="run no op again more than N times")
    group.add_argument(
        "--device",
        metavar="NAME",
        help="what time is reckoned for: a100, h100, rtx4090, t4, cpu, ..., or measured, to time each kind of op here",
    )


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Plan, save, print."""
    with terminal.progress() as progress:
        plan = with_values(args, terminal, lambda call: plan_call(call, args, progress))
    if args.output is not None:
        plan.save(args.output)
        terminal.note(f"wrote {args.output}")
    if args.json:
        terminal.show_json(numbers(plan))
    else:
        terminal.show_document(plan_document(plan))
    return 0


def with_values(args: argparse.Namespace, terminal: Terminal, work: Callable[[Call], T]) -> T:
    """`work` on the step that the arguments name, built on `meta`; once more on the CPU if it looks at values."""
    call = load_call(args, "meta")
    try:
        return work(call)
    except TraceError as e:
        if not _reads_values(e):
            raise
        wanted, there = _parameter_bytes(call), physical_bytes()
        if 4 * wanted > there:  # parameters, gradients, and half of the memory for activations
            raise TraceError(
                f"{e} (not tried for real: the model's {format_bytes(wanted)} of parameters are too much for this "
                f"machine's {format_bytes(there)})"
            ) from e
        terminal.note(
            f"{call.title} looks at values in its forward pass: it is run once for real on the CPU to trace it"
        )
    return work(load_call(args, "cpu"))


def plan_call(call: Call, args: argparse.Namespace, progress: Report | None, step: Step | None = None) -> Plan:
    """`lowtide.plan` for the step, which is traced here if it is not given; the plan remembers what it was called."""
    import lowtide

    with running(call):
        plan = lowtide.plan(
            call.loaded.model if step is None else step,
            call.args,
            call.kwargs,
            loss=call.loaded.loss,
            budget=getattr(args, "budget", None),
            budget_of=getattr(args, "budget_of", "total"),
            max_slowdown=getattr(args, "max_slowdown", 0.34),
            max_recompute=getattr(args, "max_recompute", None),
            device=getattr(args, "device", None),
            solver=getattr(args, "solver", "auto"),
            optimizer=args.optimizer,
            compress=not getattr(args, "no_compress", False),
            progress=progress,
        )
    plan.step.meta["name"] = call.loaded.name  # not part of the digest
    return plan


def _parameter_bytes(call: Call) -> int:
    return sum(p.numel() * p.element_size() for p in call.loaded.model.parameters())


def physical_bytes() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _reads_values(error: BaseException) -> bool:
    """Whether the step asked a tensor on `meta` for its content, which a real one would have given."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    reasons = (DataDependentOutputException, DynamicOutputShapeException)
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, reasons) or "meta tensor" in str(seen):
            return True
        seen = seen.__cause__
    return False


def numbers(plan: Plan) -> dict[str, Any]:
    """The plan without the step and the lists of what is kept and run, with what is there at the peak."""
    data = {k: v for k, v in plan.to_json().items() if k not in ("step", "keep", "runs")}
    baseline = simulate(uncompressed(plan.step))
    peaks = {"baseline_at_peak": at_peak(baseline), "at_peak": at_peak(simulate(plan.step, plan))}
    return {"model": plan.step.meta.get("name"), "inputs": plan.step.meta.get("inputs"), **data, **peaks}
