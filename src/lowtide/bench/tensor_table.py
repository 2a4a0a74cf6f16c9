"""Checkpoints of Feng and Huang's kind run as their program runs them, to see what of a peak is its way of running.

Their program walks the graph and enters what each vertex puts out in a table. A segment's table lives until the segment
has run, so during its forward and during its recomputation it holds all the segment makes, also what backward never
asks for; and what the last sum added up is held until the next sum, or the end. Every segment is checkpointed, the last
one, too. A residual block whose both ends are kept and whose branches are segments of their own adds them up outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

from lowtide.bench.models.sequential import Dense
from lowtide.bench.segments import stage_of
from lowtide.planning.graph import Graph
from lowtide.planning.step import Step


class _Table:
    """What one walk holds."""

    def __init__(self, x: Tensor) -> None:
        self.tensors = [x]
        self.summands: list[Tensor] = []

    @property
    def last(self) -> Tensor:
        return self.tensors[-1]

    def enter(self, y: Tensor) -> None:
        self.tensors.append(y)

    def add(self, block: nn.Module, summands: list[Tensor]) -> None:
        """A sum and the activation after it."""
        self.summands = summands
        self.enter(cast("Any", block).relu(summands[0] + summands[1]))


def as_they_run_it(
    stages: nn.Sequential, step: Step, graph: Graph, kept: Iterable[int], largest_bytes: int
) -> Callable[[Tensor], Tensor] | None:
    """A forward of `stages`, whose step and graph these are.

    Args:
        kept: the vertices to keep.
        largest_bytes: of a segment; a residual block of more whose both ends are kept is two segments.

    Returns:
        None if a kept vertex is inside a stage, or a stage of several vertices is neither a residual block of
        torchvision's nor a DenseNet layer.
    """
    chosen = set(kept)
    at = [_stage(step, graph, v) for v in range(graph.n)]
    inside: dict[int, list[int]] = {}  # stage -> its vertices
    for v in range(1, graph.n - 1):
        inside.setdefault(at[v], []).append(v)
    if any(v != inside[at[v]][-1] for v in chosen):
        return None
    if any(len(v) > 1 and not (_is_block(stages[k]) or isinstance(stages[k], Dense)) for k, v in inside.items()):
        return None
    segments = list(pairwise([0, *sorted(at[v] + 1 for v in chosen), len(stages)]))
    size = {k: sum(graph.nbytes[v] for v in vertices[:-1]) for k, vertices in inside.items()}

    def forward(x: Tensor) -> Tensor:
        table = _Table(x)
        for a, b in segments:
            if b == a + 1 and _is_block(stages[a]) and size[a] > largest_bytes:
                branches = _branches(stages[a])
                table.add(stages[a], [_checkpointed(_branch, table.last, *branch) for branch in branches])
            else:
                table.enter(_checkpointed(_segment, table.last, list(stages)[a:b]))
        return table.last

    return forward


def _stage(step: Step, graph: Graph, vertex: int) -> int:
    """The stage of a vertex; -1 for the input and the loss."""
    name = stage_of(step.ops[graph.ops[vertex][-1]].module) if graph.ops[vertex] else None
    return int(name) if name is not None else -1


def _is_block(stage: nn.Module) -> bool:
    return hasattr(stage, "downsample")


def _checkpointed(run: Callable[..., Tensor], x: Tensor, *rest: Any) -> Tensor:
    return checkpoint(run, x, *rest, use_reentrant=False)


def _segment(x: Tensor, stages: Sequence[nn.Module]) -> Tensor:
    table = _Table(x)
    for stage in stages:
        if _is_block(stage):
            start = table.last
            table.add(stage, [_branch(start, *branch, table) for branch in _branches(stage)])
        elif isinstance(stage, Dense):
            start = table.last
            _walk(start, _joined(list(stage.layer.children())), table)
            table.enter(torch.cat([start, table.last], 1))
        else:
            table.enter(stage(table.last))
    return table.last


def _branch(x: Tensor, row: list[nn.Module], end: nn.Module, table: _Table | None = None) -> Tensor:
    """A summand: a row of vertices, and what is computed on the edge to the sum."""
    own = table or _Table(x)
    return end(_walk(x, row, own))


def _walk(x: Tensor, row: Iterable[nn.Module], table: _Table) -> Tensor:
    for m in row:
        x = m(x)
        table.enter(x)
    return x


def _branches(block: nn.Module) -> list[tuple[list[nn.Module], nn.Module]]:
    """The two branches of one of torchvision's residual blocks."""
    b: Any = block
    numbers = [k for k in (1, 2, 3) if hasattr(b, f"conv{k}")]
    row: list[nn.Module] = []
    for k in numbers:
        row += [getattr(b, f"conv{k}"), getattr(b, f"bn{k}"), b.relu]
    shortcut: tuple[list[nn.Module], nn.Module] = ([], nn.Identity())
    if b.downsample is not None:
        shortcut = ([b.downsample[0]], b.downsample[1])
    return [(_joined(row[:-2]), row[-2]), shortcut]


def _joined(row: Sequence[nn.Module]) -> list[nn.Module]:
    """In-place activations with what they overwrite: one vertex."""
    out: list[nn.Module] = []
    for m in row:
        if getattr(m, "inplace", False) and out:
            out[-1] = nn.Sequential(out[-1], m)
        else:
            out.append(m)
    return out
