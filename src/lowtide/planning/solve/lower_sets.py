"""Kusumoto et al.'s lower sets: recomputation on arbitrary graphs by dynamic programming."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from lowtide.errors import InputError
from lowtide.planning.chain import Chain
from lowtide.planning.graph import Graph, lift_kept
from lowtide.planning.progress import Progress
from lowtide.planning.solve.solution import Solution, Status, of_checkpoints, of_lists, of_vertices
from lowtide.planning.solve.solver import ChainSolver
from lowtide.planning.step import Step

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LowerSets(ChainSolver):
    """Least recomputation within a memory budget, or least memory, on any graph, by a walk over lower sets.

    Attributes:
        exact_sets: use all lower sets of the graph if there are at most so many; else only those spanned by one vertex
            (a vertex and everything it is computed from), the pruned family of the paper.
        largest: refuse problems with a larger family than this.
        ticks: into how many units the cost of a forward is divided to compare costs; whole costs up to that are exact.

    Idea: a lower set holds with every vertex what it is computed from. Along a row L_1 < ... < L_k = everything keep of
    each its boundary, the vertices that something outside reads; `V_i = L_i minus L_{i-1}` is recomputed from what is
    kept. With U_i all that is kept so far, and d+ and d- what reads and what is read, step i takes
    `M(U_{i-1}) + 2 M(V_i) + M(d+(L_i) - L_i) + M(d-(d+(L_i)) - L_i)` bytes.
    For every lower set and every cost, the least M(U) on the way there decides; least memory is bisected over budgets.
    Complexity: p^2 ticks for a family of p sets, in numpy; some seconds for 1,000 vertices. The number of all lower
    sets can be exponential, that of the pruned family is the number of vertices.
    Reference: Kusumoto, Inoue, Watanabe, Akiba, Koyama, A Graph Theoretic Framework of Recomputation Algorithms for
    Memory-Efficient Backpropagation, NeurIPS 2019 (arXiv 1905.11722). Other than there, the last V_k is not run again.
    Assumes: a vertex's gradient is as large as the vertex, and that both of all of V_i are there at a time; nothing but
    outputs is saved. The peak that the solution reports counts what is there, `stats["claimed_peak_bytes"]` the above.
    Use it: on graphs that are no chains, to compare with; under a budget on them.
    """

    name: ClassVar[str] = "lower_sets"
    exact_sets: int = 500
    largest: int = 3000
    ticks: int = 200

    def __post_init__(self) -> None:
        if min(self.exact_sets, self.largest, self.ticks) < 1:
            raise InputError("exact_sets, largest and ticks of lower_sets must be at least 1")

    def solve(self, problem: Any, budget: int | None = None, progress: Progress | None = None) -> Solution:
        if isinstance(problem, Graph):
            graph = problem

            def judge(kept: list[int], stats: dict[str, float]) -> Solution:
                return of_vertices(self.name, graph, kept, Status.LEAST_CLAIM, budget, stats)

            return self._search(graph, budget, judge)
        if isinstance(problem, Step) and problem.n_forward > 0:
            step, graph = problem, Graph.from_step(problem)

            def judge_lists(kept: list[int], stats: dict[str, float]) -> Solution:
                return of_lists(self.name, step, lift_kept(step, graph, kept), Status.LEAST_CLAIM, budget, stats)

            return self._search(graph, budget, judge_lists)
        return super().solve(problem, budget, progress)

    def solve_chain(self, chain: Chain, budget: int | None) -> Solution:
        def judge(kept: list[int], stats: dict[str, float]) -> Solution:
            return of_checkpoints(self.name, chain, kept, Status.LEAST_CLAIM, budget, stats)

        return self._search(Graph.from_chain(chain), budget, judge)

    def _search(
        self, graph: Graph, budget: int | None, judge: Callable[[list[int], dict[str, float]], Solution]
    ) -> Solution:
        """The plan of the least budget by the paper's count; or, under a budget, the first that fits it as judged,
        from large budgets by that count to small ones."""
        family = Family(graph, self.exact_sets, self.largest)
        low = family.least_budget()
        best = judge(*family.plan(low, self.ticks))
        if budget is None:
            return best
        for limit in _descending(family.whole_bytes, low):
            found = judge(*family.plan(limit, self.ticks))
            if found.peak_bytes <= budget:
                return found
        return best


def _descending(high: int, low: int, count: int = 24) -> Iterator[int]:
    ratio = (max(low, 1) / max(high, 1)) ** (1 / count)
    limit = float(high)
    while limit > low:
        yield int(limit)
        limit *= ratio if ratio < 1 else 0


class Family:
    """A family of lower sets of a graph, the empty one first and the whole last, and tables over pairs of them.

    Vertex 0, the input, is in every set and costs nothing. Tables are indexed [L, L'] and infinite unless L < L'.
    """

    def __init__(self, graph: Graph, exact_sets: int, largest: int) -> None:
        self.graph = graph
        if graph.n > largest:
            raise InputError(
                f"this graph has {graph.n} vertices, and lower_sets takes up to {largest}: use a coarser graph, or "
                "solver='linear' or 'frontier'"
            )
        everything = _all_sets(graph, exact_sets)
        self.is_exact = bool(everything)
        masks = everything or _spanned_sets(graph)
        self.size = len(masks)
        members = np.array([[bool(m >> v & 1) for v in range(1, graph.n)] for m in masks], dtype=np.bool_)
        adjacent = np.zeros((graph.n - 1, graph.n - 1), dtype=np.float64)
        for u, v in graph.edges:
            if u > 0:
                adjacent[u - 1, v - 1] = 1
        nbytes, cost = np.array(graph.nbytes[1:], dtype=np.float64), np.array(graph.cost[1:], dtype=np.float64)
        outside_readers: Bools = (members @ adjacent > 0) & ~members  # d+(L) - L
        self.boundary: Bools = (outside_readers @ adjacent.T > 0) & members
        co_read: Bools = (outside_readers @ adjacent.T > 0) & ~members  # d-(d+(L)) - L, as the paper has it
        inside: Floats = members.astype(np.float64)
        is_subset: Bools = (inside @ (1 - inside).T == 0) & ~np.eye(self.size, dtype=np.bool_)
        outer = outside_readers @ nbytes + co_read @ nbytes

        def of_difference(weights: Floats, sets: Bools) -> Floats:
            """Weight of `sets[L'] - L`."""
            weighted = sets * weights
            return weighted.sum(axis=1)[None, :] - inside @ weighted.T

        step_bytes = 2 * of_difference(nbytes, members) + outer[None, :]
        self.step_bytes: Floats = np.where(is_subset, step_bytes, np.inf)
        self.kept_bytes: Floats = of_difference(nbytes, self.boundary)
        self.cost: Floats = of_difference(cost, members) - of_difference(cost, self.boundary)
        self.cost[:, -1] = 0
        self.total_cost = float(cost.sum())
        self.whole_bytes = int(self.step_bytes[0, -1])

    def least_budget(self) -> int:
        """The least budget, by the paper's count, under which there is a row of sets. It is that of some step."""
        low, high = -1, self.whole_bytes
        while high - low > 1:
            middle = (low + high) // 2
            if self._reaches(middle):
                high = middle
            else:
                low = middle
        return high

    def _reaches(self, budget: int) -> bool:
        least = np.full(self.size, np.inf)
        least[0] = 0
        for k in range(1, self.size):
            before = least[:k]
            fits = before + self.step_bytes[:k, k] <= budget
            least[k] = np.where(fits, before + self.kept_bytes[:k, k], np.inf).min()
        return bool(np.isfinite(least[-1]))

    def plan(self, budget: int, ticks: int) -> tuple[list[int], dict[str, float]]:
        """The kept vertices of the row of least cost within `budget`, which must be feasible."""
        is_whole = self.total_cost <= ticks and all(c == int(c) for c in self.graph.cost)
        unit = 1.0 if is_whole or self.total_cost == 0 else self.total_cost / ticks
        # Rounded down, so that no row costs more than all ticks; the little added is for whole costs.
        charge = np.maximum(np.floor(self.cost / unit + 1e-9), 0).astype(np.int64)
        width = ticks + 1
        least = np.full((self.size, width), np.inf)  # [L, cost so far] -> least M(U)
        before = np.full((self.size, width), -1, dtype=np.int64)
        least[0, 0] = 0
        all_ticks = np.arange(width)
        for k in range(1, self.size):
            candidates = np.flatnonzero(np.isfinite(self.step_bytes[:k, k]))
            at = all_ticks[None, :] - charge[candidates, k][:, None]
            m = np.where(at >= 0, least[candidates[:, None], np.maximum(at, 0)], np.inf)
            fits = m + self.step_bytes[candidates, k][:, None] <= budget
            m = np.where(fits, m + self.kept_bytes[candidates, k][:, None], np.inf)
            best = m.argmin(axis=0)
            least[k] = m[best, all_ticks]
            before[k] = candidates[best]
        k, tick = self.size - 1, int(np.isfinite(least[-1]).argmax())
        row: list[int] = []
        while k > 0:
            row.append(k)
            previous = int(before[k, tick])
            tick -= int(charge[previous, k])
            k = previous
        kept = {int(v) + 1 for k in row[1:] for v in np.flatnonzero(self.boundary[k])}
        return sorted(kept), self._figures(row[::-1])

    def _figures(self, row: list[int]) -> dict[str, float]:
        held, worst, cost, last = 0.0, 0.0, 0.0, 0
        for k in row:
            worst = max(worst, held + self.step_bytes[last, k])
            held += self.kept_bytes[last, k]
            cost += self.cost[last, k]
            last = k
        return {
            "claimed_peak_bytes": int(worst),
            "claimed_cost": float(cost),
            "sets": self.size,
            "all_sets": float(self.is_exact),
        }


def _all_sets(graph: Graph, limit: int) -> list[int]:
    """All lower sets as bit masks over the vertices, sizes rising; empty if there are more than `limit`."""
    needs = [sum(1 << u for u in graph.before[v]) for v in range(graph.n)]
    found, layer = [1], {1}
    for _ in range(graph.n - 1):
        layer = {m | 1 << v for m in layer for v in range(1, graph.n) if not m >> v & 1 and needs[v] & ~m == 0}
        found += sorted(layer)
        if len(found) > limit:
            return []
    return found


def _spanned_sets(graph: Graph) -> list[int]:
    """The empty lower set, those spanned by one vertex each, and the whole, sizes rising."""
    below = [1] * graph.n
    for v in range(1, graph.n):
        below[v] |= 1 << v
        for u in graph.before[v]:
            below[v] |= below[u]
    return sorted({1, *below[1:], (1 << graph.n) - 1}, key=lambda m: (m.bit_count(), m))
