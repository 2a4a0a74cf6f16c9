"""`Plan`: what to keep and what to recompute in one step, as plain data. No torch here.

A plan is two things. `keep` holds the ids of values that stay in memory from the op that wrote them: saved ones for
backward, and others that recomputation starts from. `runs` says, per unpack moment, which forward ops to run again
just before that unpack is answered, in order. Everything else follows: what is not kept is dropped in forward, and a
recomputed or kept value is let go after its last use (`schedule` works that out, for the simulator and the tape alike).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from lowtide.errors import InputError
from lowtide.files import write_whole
from lowtide.planning.compress import code_seconds
from lowtide.planning.step import Step

FORMAT = 1


@dataclass(frozen=True)
class Plan:
    """A plan for `step`, with what the judges found out about it.

    Attributes:
        keep: ids of values held from forward on.
        runs: unpack moment -> forward op ids to run before it is answered, in order.
        solver: name of who made it.
        status: one sentence for people: optimal in its class, feasible, ...
        peak_bytes: simulated peak above what was allocated when the step began.
        baseline_peak_bytes: the same without a plan.
        total_peak_bytes: the peak with everything in: parameters, buffers, inputs, gradients, optimizer state.
        lower_bound_bytes: no plan without compression or offloading can be below it.
        bound_op: which op sets the bound, `'backward of layer1.0.bn3 (aten.native_batch_norm_backward)'`.
        recompute_flops: floating point operations added by the plan.
        recompute_ops: number of op runs added by the plan.
    """

    step: Step
    keep: frozenset[int]
    runs: Mapping[int, tuple[int, ...]]
    solver: str
    status: str
    peak_bytes: int
    baseline_peak_bytes: int
    total_peak_bytes: int
    lower_bound_bytes: int
    bound_op: str
    recompute_flops: int
    recompute_ops: int

    @property
    def added_s(self) -> float:
        """Seconds that recomputation and codes add to the step; 0 if the step has no costs."""
        seconds = self.step.seconds
        again = sum(seconds[o] for ops in self.runs.values() for o in ops) if seconds else 0.0
        return again + code_seconds(self.step, self.keep, self.runs)

    @property
    def slowdown(self) -> float:
        """`added_s` as a fraction of the plain step's seconds; of its FLOPs if the step has no costs."""
        if self.step.seconds:
            return self.added_s / self.step.total_seconds if self.step.total_seconds else 0.0
        return self.recompute_flops / self.step.total_flops if self.step.total_flops else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "kind": "lowtide.plan",
            "digest": self.step.digest,
            "solver": self.solver,
            "status": self.status,
            "peak_bytes": self.peak_bytes,
            "baseline_peak_bytes": self.baseline_peak_bytes,
            "total_peak_bytes": self.total_peak_bytes,
            "lower_bound_bytes": self.lower_bound_bytes,
            "bound_op": self.bound_op,
            "recompute_flops": self.recompute_flops,
            "recompute_ops": self.recompute_ops,
            "added_s": self.added_s,
            "keep": sorted(self.keep),
            "runs": [[m, list(ops)] for m, ops in sorted(self.runs.items())],
            "step": self.step.to_json(),
        }

    @staticmethod
    def from_json(data: Any) -> Plan:
        """Inverse of `to_json`.

        Raises:
            InputError: if `data` is not a plan, one of another format version, or damaged.
        """
        if not isinstance(data, dict) or data.get("kind") != "lowtide.plan":  # pyright: ignore[reportUnknownMemberType]
            raise InputError("this is not a Lowtide plan: no field 'kind' with the value 'lowtide.plan'")
        fields = cast(dict[str, Any], data)
        if fields.get("format") != FORMAT:
            raise InputError(
                f"this plan has format {fields.get('format')!r}, this Lowtide reads format {FORMAT}: plan again"
            )
        try:
            step = Step.from_json(fields["step"])
            plan = Plan(
                step=step,
                keep=frozenset(fields["keep"]),
                runs={m: tuple(ops) for m, ops in fields["runs"]},
                **{
                    k: fields[k]
                    for k in (
                        "solver", "status", "peak_bytes", "baseline_peak_bytes", "total_peak_bytes",
                        "lower_bound_bytes", "bound_op", "recompute_flops", "recompute_ops",
                    )
                },
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as e:
            if isinstance(e, InputError):
                raise
            raise InputError(f"this plan is damaged ({type(e).__name__}: {e}): plan again") from e
        if step.digest != fields.get("digest"):
            raise InputError("this plan is damaged: its step does not have the digest it was saved with; plan again")
        return plan

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON. The file appears whole or not at all.

        Raises:
            InputError: if the file cannot be written.
        """
        write_whole(path, json.dumps(self.to_json(), separators=(",", ":")), "the plan")

    def __repr__(self) -> str:
        from lowtide.report.text import describe_plan

        return describe_plan(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from lowtide.report.notebook import plan_html

        return plan_html(self)


def load(path: str | os.PathLike[str]) -> Plan:
    """Read a plan that `Plan.save` wrote.

    Raises:
        InputError: if the file cannot be read or is not a plan.
    """
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not text"
        raise InputError(f"cannot read the plan {os.fspath(path)!r}: {reason}") from e
    try:
        data = json.loads(text)
    except json.JSONDecodeError as e:
        raise InputError(f"{os.fspath(path)!r} is not a plan: it is not JSON (line {e.lineno})") from e
    return Plan.from_json(data)
