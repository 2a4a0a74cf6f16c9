"""`Solution` and `Status`: what every solver returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from lowtide.planning.chain import Chain
from lowtide.planning.rehearse import Move, rehearse
from lowtide.units import format_bytes, format_percent

if TYPE_CHECKING:
    from lowtide.planning.graph import Graph
    from lowtide.planning.plan import Plan
    from lowtide.planning.step import Step


class Status(str, Enum):
    """How good a solution is. The values are the sentences that people read."""

    LEAST_PEAK = "least peak of its class; to go lower, let stages run more often (solver='rotor' with a lower budget)"
    LEAST_OF_ALL = "least peak there is: it is the lower bound of all plans; to recompute less, set a budget"
    NEAR_LEAST = (
        "good cuts, not proven to be the best of their class; to go lower, let ops run more often: solver='deep'"
    )
    SEARCHED = "a search's plan; the bound says how far the least peak can be below it; to go lower, raise max_slowdown"
    LEAST_CLAIM = "least by its own objective, which is not quite what PyTorch does; solver='linear' is exact on chains"
    LEAST_COST = "least recomputation of its class within the budget; to recompute less, raise the budget"
    HEURISTIC = "a rule's plan, not the best there is; solver='linear' is exact on chains, 'frontier' on steps"
    ON_CHAIN = (
        "found on the chain that the step was reduced to, which is coarser; solver='frontier' takes the step itself"
    )
    GIVEN = "the plan that was given, judged but not improved; solver='auto' looks for a better one"
    OVER_BUDGET = "no plan of this solver fits the budget; raise it to the peak given here, or try solver='rotor'"


@dataclass(frozen=True)
class Solution:
    """A plan for a chain, a graph or a step, judged.

    Attributes:
        solver: name of the solver that made it ('auto' never appears here: what it picked does).
        status: how good it is, as a sentence.
        peak_bytes: peak of the plan: by the revised objective for a chain, simulated for a step.
        bound: no plan can peak below this many bytes.
        checkpoints: stage numbers c, 0 < c < n, in order. For a schedule: what is held when backward begins.
        recompute_cost: cost of the forward runs beyond the first, in the problem's unit.
        schedule: the moves, if stages may run more than twice; else empty, and the checkpoints say it all.
        plan: the plan of a `Step`.
        stats: figures about the search: seconds, states, the solver's own objective.
    """

    solver: str
    status: Status
    peak_bytes: int
    bound: int
    checkpoints: tuple[int, ...] = ()
    recompute_cost: float = 0.0
    schedule: tuple[Move, ...] = field(default=(), repr=False)
    plan: Plan | None = field(default=None, repr=False)
    stats: Mapping[str, float] = field(default_factory=dict[str, float])

    def __repr__(self) -> str:
        over = self.peak_bytes / self.bound - 1 if self.bound else 0.0
        shown = ", ".join(map(str, self.checkpoints[:12]))
        if len(self.checkpoints) > 12:
            shown += f", ... ({len(self.checkpoints)} in all)"
        rows = [
            f"Solution by {self.solver}: peak {format_bytes(self.peak_bytes)}, "
            f"{format_percent(over)} above the bound of {format_bytes(self.bound)}",
            f"  status       {self.status.value}",
            f"  checkpoints  {shown or 'none'}",
            f"  recompute    {self.recompute_cost:g}",
        ]
        rows += [f"  schedule     {len(self.schedule)} moves"] if self.schedule else []
        rows += ["  stats        " + ", ".join(f"{k} {v:g}" for k, v in self.stats.items())] if self.stats else []
        return "\n".join(rows)


def of_checkpoints(
    solver: str,
    chain: Chain,
    checkpoints: Iterable[int],
    status: Status,
    budget: int | None = None,
    stats: Mapping[str, float] | None = None,
) -> Solution:
    """A solution from a checkpoint set, with the chain's own figures. Over the budget, it says so."""
    chosen = chain.check_checkpoints(checkpoints)
    peak = chain.peak_bytes(chosen)
    return Solution(
        solver=solver,
        status=Status.OVER_BUDGET if budget is not None and peak > budget else status,
        peak_bytes=peak,
        bound=chain.floor_bytes,
        checkpoints=chosen,
        recompute_cost=chain.recompute_cost(chosen),
        stats=stats or {},
    )


def of_schedule(
    solver: str,
    chain: Chain,
    moves: Iterable[Move],
    status: Status,
    budget: int | None = None,
    stats: Mapping[str, float] | None = None,
) -> Solution:
    """A solution from a schedule, as it was rehearsed. Over the budget, it says so."""
    schedule = tuple(moves)
    played = rehearse(chain, schedule)
    held: set[int] = set()
    for action, k in schedule:
        if action == "backward":
            break
        if action == "hold":
            held.add(k)
        elif action == "drop":
            held.discard(k)
    return Solution(
        solver=solver,
        status=Status.OVER_BUDGET if budget is not None and played.peak_bytes > budget else status,
        peak_bytes=played.peak_bytes,
        bound=chain.floor_bytes,
        checkpoints=tuple(sorted(held - {chain.n})),
        recompute_cost=played.recompute_cost,
        schedule=schedule,
        stats=stats or {},
    )


def of_vertices(
    solver: str,
    graph: Graph,
    kept: Iterable[int],
    status: Status,
    budget: int | None = None,
    stats: Mapping[str, float] | None = None,
) -> Solution:
    """A solution of a graph made by hand. `checkpoints` are the kept vertices, the peak is
    `Graph.sum_plus_worst_bytes`, the bound its largest vertex, and all that is not kept is taken to run twice."""
    chosen = tuple(sorted(kept))
    peak = graph.sum_plus_worst_bytes(chosen)
    return Solution(
        solver=solver,
        status=Status.OVER_BUDGET if budget is not None and peak > budget else status,
        peak_bytes=peak,
        bound=max(graph.nbytes[1:-1], default=0),
        checkpoints=chosen,
        recompute_cost=sum(c for v, c in enumerate(graph.cost[1:-1], 1) if v not in set(chosen)),
        stats=stats or {},
    )


def of_lists(
    solver: str,
    step: Step,
    lists: tuple[Iterable[int], Mapping[int, tuple[int, ...]]],
    status: Status,
    budget: int | None = None,
    stats: Mapping[str, float] | None = None,
    checkpoints: tuple[int, ...] = (),
    said: str = "",
) -> Solution:
    """A solution from a step's lists (keep, runs), checked and simulated. `said`: the plan's status, if there is
    more to say than what `status` says.

    Raises:
        PlanError: if the lists break a rule of plans.
    """
    from lowtide.planning.judge import judge

    plan = judge(step, *lists, solver=solver, status=status.value)
    if budget is not None and plan.peak_bytes > budget:
        status = Status.OVER_BUDGET
    return Solution(
        solver=solver,
        status=status,
        peak_bytes=plan.peak_bytes,
        bound=plan.lower_bound_bytes,
        checkpoints=checkpoints,
        recompute_cost=plan.recompute_flops,
        plan=replace(plan, status=said or status.value),
        stats=stats or {},
    )
