"""Feng and Huang's optimal gradient checkpoints, on chains and on arbitrary graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from lowtide.planning.chain import Chain
from lowtide.planning.graph import Graph, lift_kept
from lowtide.planning.progress import Progress
from lowtide.planning.solve.cubic import cheapest_under, least_sum_plus_worst
from lowtide.planning.solve.division import Kind, Part, divide
from lowtide.planning.solve.solution import Solution, Status, of_checkpoints, of_lists, of_vertices
from lowtide.planning.solve.solver import ChainSolver
from lowtide.planning.step import Step


@dataclass(frozen=True)
class FengHuang(ChainSolver):
    """Least "all checkpoints plus the largest segment", on any graph: optimal gradient checkpoint search (OGC).

    Idea: a segment costs the bytes that its vertices put out. Try every possible size of the largest segment as a cap:
    on a chain the cheapest checkpoints whose segments stay under it are a shortest path with vertex costs. A graph is
    taken apart into a division tree of linear, branch and other parts (`division`). A part under the cap is one segment
    or goes into one; a part above it is solved for itself with its ends kept, a linear one by shortest paths over its
    stretches of small parts, the others by keeping all vertices at which they are taken apart. Kept bytes plus cap,
    least over all caps.
    Complexity: on chains O(n^2) caps times O(n). On graphs the tree takes O(n^2), each cap O(n), and as `cubic` it
    visits only caps that some plan really has; parts of the third kind cost O(m^2) sets of m vertices once.
    Reference: Feng and Huang, Optimal Gradient Checkpoint Search for Arbitrary Computation Graphs, CVPR 2021 (arXiv
    1808.00079), algorithms 1 to 3.
    Assumes: checkpoints stay to the end, the backward of a stage costs nothing beyond what is stored, and nothing but
    outputs is saved. The peak that the solution reports counts all of that as it is; `stats["claimed_peak_bytes"]` is
    the algorithm's own objective. On graphs it is exact for chains only.
    Use it: to compare with.
    """

    name: ClassVar[str] = "feng_huang"
    exact: ClassVar[bool] = True

    def solve(self, problem: Any, budget: int | None = None, progress: Progress | None = None) -> Solution:
        if isinstance(problem, Graph):
            kept, stats = least_kept_plus_worst(problem)
            return of_vertices(self.name, problem, kept, Status.LEAST_CLAIM, budget, stats)
        if isinstance(problem, Step) and problem.n_forward > 0:
            graph = Graph.from_step(problem)
            kept, stats = least_kept_plus_worst(graph)
            stats["vertices"] = graph.n
            return of_lists(self.name, problem, lift_kept(problem, graph, kept), Status.LEAST_CLAIM, budget, stats)
        return super().solve(problem, budget, progress)

    def solve_chain(self, chain: Chain, budget: int | None) -> Solution:
        levels = [h - t for h, t in zip(chain.levels, chain.t, strict=True)]
        checkpoints, total, caps = least_sum_plus_worst(chain.a, chain.stored, levels)
        stats = {"claimed_peak_bytes": total, "caps": caps}
        return of_checkpoints(self.name, chain, checkpoints, Status.LEAST_CLAIM, budget, stats)


def least_kept_plus_worst(graph: Graph) -> tuple[list[int], dict[str, float]]:
    """The vertices to keep, and figures about the search."""
    tree = divide(graph)
    best, best_total, caps = list[int](), -1, 0
    cap = tree.nbytes
    while cap >= 0:
        kept, worst = _kept_under(graph, tree, cap)
        caps += 1
        total = sum(graph.nbytes[v] for v in kept)
        if best_total < 0 or total + worst < best_total:
            best, best_total = kept, total + worst
        cap = min(worst - 1, best_total - total - 1)  # nothing changes down to `worst`; lower caps keep no less
    return best, {"claimed_peak_bytes": best_total, "caps": caps}


def _kept_under(graph: Graph, tree: Part, cap: int) -> tuple[list[int], int]:
    """What the division tree keeps if no segment may be larger than `cap`; and the largest segment there is then."""
    if tree.nbytes <= cap:
        return [], tree.nbytes
    kept: set[int] = set()
    worst = 0
    todo = [tree]
    while todo:
        part = todo.pop()
        large = [c for c in part.children if c.nbytes > cap]
        todo += large
        if part.kind is not Kind.LINEAR:
            kept.update(part.inside)
            worst = max([worst, *(c.nbytes for c in part.children if c.nbytes <= cap)])
            continue
        ends = {v for c in large for v in (c.source, c.target)}
        for stretch in _stretches(part, cap):
            path, largest = _shortest(graph, stretch, cap)
            ends.update(path)
            worst = max(worst, largest)
        kept.update(ends - {part.source, part.target})
    return sorted(kept), worst


def _stretches(part: Part, cap: int) -> Iterator[list[Part]]:
    """The runs of neighbouring children of a linear part that are not above the cap."""
    run: list[Part] = []
    for child in part.children:
        if child.nbytes <= cap:
            run.append(child)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _shortest(graph: Graph, stretch: list[Part], cap: int) -> tuple[list[int], int]:
    """The cheapest vertices, both ends included, that cut a stretch into segments of at most `cap` bytes; and the
    largest segment."""
    vertices = [stretch[0].source, *(c.target for c in stretch)]
    cost = [0, *(graph.nbytes[v] for v in vertices[1:])]
    stored, levels = [0], list[int]()  # as in `Chain`: a segment (c, j] has levels_j - stored_c bytes
    for c, nbytes in zip(stretch, cost[1:], strict=True):
        levels.append(stored[-1] + c.nbytes)
        stored.append(levels[-1] + nbytes)
    path, _ = cheapest_under(cap, cost, stored, levels)
    ends = [*path, len(stretch)]
    largest = max(levels[j - 1] - stored[c] for c, j in pairwise(ends))
    return [vertices[q] for q in ends], largest
