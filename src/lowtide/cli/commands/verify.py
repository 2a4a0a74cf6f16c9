"""`lowtide verify MODEL`: run the step with and without the plan, for real, and compare."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from lowtide.cli.commands.plan import plan_call
from lowtide.cli.model_arguments import Call, add_model_arguments, load_call, running
from lowtide.cli.terminal import Report, Terminal
from lowtide.errors import InputError
from lowtide.planning.compress import uncompressed
from lowtide.report.text import title, verdict_document

if TYPE_CHECKING:
    from lowtide.planning.plan import Plan
    from lowtide.planning.step import Step

SUMMARY = "run a training step with and without its plan: gradients, buffers, random state, peak, time"
EXAMPLES = [
    "lowtide verify torchvision:resnet50 --input 8x3x224x224",
    "lowtide verify hf:bert --set num_hidden_layers=4 --input 4x128 --optimizer adamw --steps 3",
    "lowtide plan my_model.py:make -o plan.json && lowtide verify my_model.py:make --plan plan.json",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_model_arguments(parser)
    parser.add_argument("--plan", metavar="FILE", help="a plan that lowtide plan wrote; without it, plan first")
    parser.add_argument("--steps", type=int, default=1, metavar="N", help="training steps to compare (default 1)")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Exit status 0 if both ways agree to the bit, 1 if not."""
    import lowtide
    from lowtide.acting.workspace import traced_with_workspace

    if args.steps < 1:
        raise InputError(f"--steps {args.steps} compares nothing: take 1 or more")
    saved = lowtide.load(args.plan) if args.plan is not None else None
    with terminal.progress() as progress:
        call = load_call(args, "cpu")
        if saved is None:
            plan = plan_call(call, args, progress, _traced(traced_with_workspace, call, args, progress))
        else:
            plan = _for_this_step(saved, call, args, progress)
        if progress is not None:
            progress("run it both ways", 0.0)
        with running(call):
            verdict = lowtide.verify(
                call.loaded.model,
                call.args,
                call.kwargs,
                loss=call.loaded.loss,
                plan=plan,
                steps=args.steps,
                optimizer=args.optimizer,
                seed=args.seed,
            )
    if args.json:
        terminal.show_json({"model": call.loaded.name, "inputs": call.inputs, **verdict.to_json()})
        return 0 if verdict.ok else 1
    terminal.show(f"{call.title}{_solver(plan)}")
    terminal.show("")
    terminal.show_document(verdict_document(verdict))
    return 0 if verdict.ok else 1


def _traced(trace: Callable[..., Step], call: Call, args: argparse.Namespace, progress: Report | None) -> Step:
    """The step of `call`, by `trace`."""
    loaded = call.loaded
    with running(call):
        return trace(
            loaded.model, call.args, call.kwargs, loss=loaded.loss, optimizer=args.optimizer, progress=progress
        )


def _for_this_step(plan: Plan, call: Call, args: argparse.Namespace, progress: Report | None) -> Plan:
    """The plan, if it was made for the step of `call`. The executor would fall back on keeping what it does not know,
    and the comparison would be true and worthless."""
    import lowtide

    step = _traced(lowtide.trace, call, args, progress)
    if step.digest != uncompressed(plan.step).digest:
        step.meta["name"] = call.loaded.name
        here, there = title(step), title(plan.step)
        seen = f"for {there}, not for {here}" if here != there else f"for another step of {there}"
        raise InputError(f"the plan {args.plan!r} is {seen}: plan this one with lowtide plan")
    return plan


def _solver(plan: Plan) -> str:
    return f", planned by {plan.solver}" if plan.solver else ""
