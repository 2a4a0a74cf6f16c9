"""What planning takes: wall time and memory of whole `lowtide plan` processes, and the time of the planning in them.

Nothing of a model's size is allocated: the models are built on `meta`, the 48-layer GPT-2 is the size of GPT-2 XL.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import lowtide
from benchmarks.output import Limit, Report, chosen, parser

GB = 10**9

COLUMNS = (
    "command", "wall s", "processor s", "memory GB", "trace s", "plan s", "ops", "plain MB", "planned MB",
    "saved plan MB",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A command and what it may take."""

    arguments: tuple[str, ...]
    wall_s: float
    memory_bytes: float | None = None
    plan_s: float | None = None


CASES = {
    "resnet50": Case(("torchvision:resnet50", "--input", "64x3x224x224"), 20.0, 2 * GB, 5.0),
    "densenet201": Case(("torchvision:densenet201", "--input", "64x3x224x224"), 60.0),
    "gpt2-48": Case(
        ("hf:gpt2", "--set", "n_layer=48", "--set", "n_embd=1600", "--set", "n_head=25", "--input", "4x1024:int64"),
        60.0,
    ),
}


def run(name: str, report: Report) -> None:
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        command = [sys.executable, "-m", "lowtide", "plan", *case.arguments, "-o", str(path)]
        start = time.perf_counter()
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - start
            if os.waitstatus_to_exitcode(status) != 0:
                said.seek(0)
                raise SystemExit(f"{' '.join(command)} failed: {said.read()}")
        plan = lowtide.load(path)
        saved = path.stat().st_size
    make_plan = lowtide.plan  # imported now, not while the clock runs
    start = time.perf_counter()
    make_plan(plan.step)
    planned = time.perf_counter() - start
    memory = usage.ru_maxrss * 1024  # kilobytes on Linux
    report.add(
        command=" ".join(["lowtide plan", *case.arguments]),
        ops=len(plan.step.ops),
        **{
            "wall s": wall,
            "processor s": usage.ru_utime + usage.ru_stime,
            "memory GB": memory / GB,
            "trace s": plan.step.meta.get("trace_s"),
            "plan s": planned,
            "plain MB": plan.baseline_peak_bytes / 2**20,
            "planned MB": plan.peak_bytes / 2**20,
            "saved plan MB": saved / 2**20,
        },
    )
    report.limits.append(Limit(f"{name}: wall s", wall, case.wall_s))
    if case.memory_bytes is not None:
        report.limits.append(Limit(f"{name}: memory GB", memory / GB, case.memory_bytes / GB))
    if case.plan_s is not None:
        report.limits.append(Limit(f"{name}: planning s", planned, case.plan_s))


def main(argv: list[str] | None = None) -> int:
    args = parser(__doc__, list(CASES)).parse_args(argv)
    report = Report("resources", "What `lowtide plan` takes, as a whole process", COLUMNS)
    for name in chosen(args.only, list(CASES)):
        run(name, report)
    return report.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
