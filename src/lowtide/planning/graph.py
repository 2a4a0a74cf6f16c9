"""`Graph`: a step as a graph of tensors, for the algorithms of the literature that work on one. No torch here.

Vertex v is what one forward op puts out, with its size; an edge (u, v) says that v is computed from u. Vertices are in
the order of execution, vertex 0 is the model's input and the last one the loss. Such algorithms choose which vertices
to keep; what lies between is recomputed, each connected piece at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from lowtide.errors import InputError
from lowtide.planning.chain import Chain
from lowtide.planning.frontiers import Fact, Frontiers
from lowtide.planning.step import Category, Step

Lists = tuple[frozenset[int], Mapping[int, tuple[int, ...]]]


@dataclass(frozen=True)
class Graph:
    """A directed graph without cycles in which every vertex lies on a path from the first to the last.

    Attributes:
        nbytes: size of each vertex.
        cost: of computing each vertex, in FLOPs or seconds.
        edges: (u, v) with u < v, each once.
        ops: per vertex the forward ops of the step that it came from; empty if made by hand.
    """

    nbytes: tuple[int, ...]
    cost: tuple[float, ...]
    edges: tuple[tuple[int, int], ...]
    ops: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        n = self.n
        if n < 2:
            raise InputError(f"a graph needs at least an input and an output: {n} vertices are given")
        if len(self.cost) != n:
            raise InputError(f"cost has {len(self.cost)} entries for {n} vertices")
        if min(self.nbytes) < 0:
            raise InputError(f"a vertex of {min(self.nbytes)} bytes: sizes cannot be negative")
        for u, v in self.edges:
            if not 0 <= u < v < n:
                raise InputError(f"edge ({u}, {v}) must lead from an earlier to a later vertex of 0 to {n - 1}")
        for v in range(n):
            if (v > 0 and not self.before[v]) or (v < n - 1 and not self.after[v]):
                raise InputError(f"vertex {v} lies on no path from vertex 0 to vertex {n - 1}: leave it out")

    @property
    def n(self) -> int:
        """Number of vertices."""
        return len(self.nbytes)

    @cached_property
    def before(self) -> tuple[tuple[int, ...], ...]:
        """Per vertex, those it is computed from."""
        out: list[list[int]] = [[] for _ in range(self.n)]
        for u, v in sorted(set(self.edges)):
            out[v].append(u)
        return tuple(map(tuple, out))

    @cached_property
    def after(self) -> tuple[tuple[int, ...], ...]:
        """Per vertex, those that are computed from it."""
        out: list[list[int]] = [[] for _ in range(self.n)]
        for u, v in sorted(set(self.edges)):
            out[u].append(v)
        return tuple(map(tuple, out))

    def pieces(self, kept: Iterable[int]) -> list[list[int]]:
        """The connected pieces of what is left without the `kept` vertices, the first and the last one."""
        gone = {0, self.n - 1, *kept}
        piece_of: dict[int, int] = {}
        for start in range(self.n):
            if start in gone or start in piece_of:
                continue
            todo = [start]
            piece_of[start] = start
            while todo:
                v = todo.pop()
                for w in (*self.before[v], *self.after[v]):
                    if w not in gone and w not in piece_of:
                        piece_of[w] = start
                        todo.append(w)
        out: dict[int, list[int]] = {}
        for v in sorted(piece_of):
            out.setdefault(piece_of[v], []).append(v)
        return list(out.values())

    def sum_plus_worst_bytes(self, kept: Iterable[int]) -> int:
        """The objective of Chen and of Feng and Huang: bytes of the kept vertices plus those of the largest piece. The
        first and the last vertex are not counted."""
        chosen = set(kept) - {0, self.n - 1}
        pieces = self.pieces(chosen)
        return sum(self.nbytes[v] for v in chosen) + max((sum(self.nbytes[v] for v in p) for p in pieces), default=0)

    @staticmethod
    def from_chain(chain: Chain) -> Graph:
        """A path: vertex k is stage k with all it stores, its output and what it saves besides."""
        sizes = (a + s for a, s in zip(chain.a[1:], chain.s, strict=True))
        return Graph(
            nbytes=(chain.a[0], *sizes),
            cost=(0.0, *chain.forward),
            edges=tuple((k - 1, k) for k in range(1, chain.n + 1)),
        )

    @staticmethod
    def from_step(step: Step) -> Graph:
        """The graph of a step's forward ops. An in-place op (`relu_`, `add_`) is one vertex with what it overwrites,
        if nobody else reads that, and a sum is one with the terms that it alone reads and that backward does not ask
        for (a batch norm in front of it): so Feng and Huang's program draws residual blocks. The size is that of the
        op's first output. Ops that lead nowhere are left out, and ops that read nothing of the graph hang on the
        input."""
        readers: dict[int, int] = {}
        for op in step.ops[: step.n_forward]:
            for r in op.reads:
                readers[r] = readers.get(r, 0) + 1
        saved = {s.value for s in step.saves}
        vertex_of = {v: 0 for v in range(len(step.values)) if _is_input(step, v)}  # value -> vertex
        nbytes, cost, ops = [0], [0.0], [list[int]()]
        edges: set[tuple[int, int]] = set()
        for o, op in enumerate(step.ops[: step.n_forward]):
            writes = [w for w in op.writes if not step.storages[step.values[w].storage].external]
            if not writes:
                continue
            old = [vertex_of[a] for a, _ in op.inplace if vertex_of.get(a, 0) > 0 and readers[a] == 1]
            if old:
                v = old[0]
                cost[v] += op.flops
                ops[v].append(o)
            else:
                v = len(nbytes)
                nbytes.append(step.nbytes(writes[0]))
                cost.append(float(op.flops))
                ops.append([o])
            reads = {vertex_of[r] for r in op.reads if r in vertex_of} or {0}
            if op.name.startswith("aten.add"):
                own = [
                    r for r in op.reads if vertex_of.get(r, 0) > 0 and r not in saved and _reads(step, readers, r) == 1
                ]
                terms = {vertex_of[r] for r in own} - {v}
                for u in terms:
                    cost[v] += cost[u]
                    ops[v] = sorted((*ops[v], *ops[u]))
                reads = (reads | {a for a, b in edges if b in terms}) - terms
                edges = {(a, b) for a, b in edges if b not in terms}
            edges.update((u, v) for u in reads if u != v)
            vertex_of.update(dict.fromkeys(writes, v))
        return _ordered(nbytes, cost, edges, ops)


def _is_input(step: Step, value: int) -> bool:
    v = step.values[value]
    return v.op < 0 and step.storages[v.storage].category is Category.INPUT


def _reads(step: Step, readers: Mapping[int, int], value: int) -> int:
    """How often forward ops read what the op that made `value` writes."""
    return sum(readers.get(w, 0) for w in step.ops[step.values[value].op].writes)


def _ordered(nbytes: list[int], cost: list[float], edges: set[tuple[int, int]], ops: list[list[int]]) -> Graph:
    """The graph with its vertices in the order of their last ops, without those that do not lead to the last one."""
    order = sorted(range(len(nbytes)), key=lambda v: ops[v][-1] if ops[v] else -1)
    rank = {v: k for k, v in enumerate(order)}
    useful = {order[-1]}
    for u, v in sorted(edges, key=lambda e: -rank[e[1]]):
        if v in useful:
            useful.add(u)
    kept = [v for v in order if v in useful]
    number = {v: k for k, v in enumerate(kept)}
    return Graph(
        nbytes=tuple(nbytes[v] for v in kept),
        cost=tuple(cost[v] for v in kept),
        edges=tuple(sorted((number[u], number[v]) for u, v in edges if u in useful and v in useful)),
        ops=tuple(tuple(ops[v]) for v in kept),
    )


def lift_kept(step: Step, graph: Graph, kept: Iterable[int]) -> Lists:
    """Kept vertices of the graph of `step` as the step's lists (keep, runs): of a kept vertex the last version of its
    output is kept. The rest is recomputed in connected pieces, each when backward first asks for something of it. The
    piece that is asked for first is kept instead: nothing is gained by dropping it."""
    fronts = Frontiers(step)
    keep = {f.value for f in fronts.facts.values() if f.always or f.free}
    for v in kept:
        for o in reversed(graph.ops[v]):
            w = next((w for w in step.ops[o].writes if w in fronts.facts and step.values[w].overwritten < 0), None)
            if w is not None:
                keep.add(w)
                break
    pieces = sorted(_pieces(fronts, keep), key=lambda p: p[0])
    if pieces:
        _, ops = pieces.pop(0)
        keep.update(f.value for o in ops for f in fronts.made[o] if f.dropped_until)
        pieces = sorted(_pieces(fronts, keep), key=lambda p: p[0])
    runs: dict[int, tuple[int, ...]] = {}
    for asked, ops in pieces:
        runs[asked] = tuple(sorted((*runs.get(asked, ()), *ops)))
    read = {r for ops in runs.values() for o in ops for r in step.ops[o].reads}
    return frozenset(v for v in keep if fronts.facts[v].dropped_until or v in read), runs


def _pieces(fronts: Frontiers, keep: set[int]) -> list[tuple[int, list[int]]]:
    """The connected pieces of the ops that must run again if `keep` is kept: (moment it is first asked for, ops)."""
    step = fronts.step
    needed: set[int] = set()
    ops: list[int] = []

    def wanted(f: Fact) -> bool:
        return f.value not in keep and (f.dropped_until > 0 or f.value in needed)

    for o in range(fronts.n - 1, -1, -1):
        if fronts.relevant[o] and any(wanted(f) for f in fronts.made[o]):
            ops.append(o)
            needed.update(step.ops[o].reads)
    root = {o: o for o in ops}

    def find(o: int) -> int:
        while root[o] != o:
            root[o] = root[root[o]]
            o = root[o]
        return o

    for o in ops:
        for r in step.ops[o].reads:
            maker = step.values[r].op
            if r not in keep and maker in root and not step.is_external(r):
                root[find(o)] = find(maker)
    out: dict[int, list[int]] = {}
    for o in sorted(ops):
        out.setdefault(find(o), []).append(o)
    asked = {
        q: min(f.asked for o in piece for f in fronts.made[o] if f.dropped_until and f.value not in keep)
        for q, piece in out.items()
    }
    return [(asked[q], piece) for q, piece in out.items()]
