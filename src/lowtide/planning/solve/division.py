"""The division tree of a graph: how Feng and Huang take an arbitrary graph apart.

A *part* is what lies between two vertices s and t and touches the rest only there. It is taken apart as

* linear, at every vertex that all paths from s to t pass;
* branch, into pieces that share nothing but s and t;
* other, if neither is possible: for every two of its vertices the largest part between them, and of all these the
  largest ones that share no edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from lowtide.planning.graph import Graph


class Kind(str, Enum):
    """How a part is taken apart."""

    LEAF = "leaf"
    LINEAR = "linear"
    BRANCH = "branch"
    OTHER = "other"


@dataclass(frozen=True)
class Part:
    """A node of the division tree.

    Attributes:
        source, target: its ends; they do not belong to it.
        kind: how it is taken apart.
        nbytes: of the vertices inside.
        inside: the vertices that `children` end at, its own ends aside, in order; all of them if it is linear.
        children: the parts it is taken apart into; if linear, in order.
    """

    source: int
    target: int
    kind: Kind
    nbytes: int
    inside: tuple[int, ...]
    children: tuple[Part, ...]


def divide(graph: Graph) -> Part:
    """The division tree of a whole graph. O(n^2) for graphs that are linear and branches all the way down; a part of
    the third kind with m vertices takes O(m^2) operations on sets of m bits."""
    last = graph.n - 1
    return _Divider(graph).part(0, last, _span(0, last), last in graph.after[0])


class _Divider:
    """Sets of vertices are bit masks."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        n = graph.n
        self.before = [sum(1 << u for u in graph.before[v]) for v in range(n)]
        self.after = [sum(1 << u for u in graph.after[v]) for v in range(n)]
        self.touching = [b | a for b, a in zip(self.before, self.after, strict=True)]

    def part(self, s: int, t: int, inner: int, direct: bool) -> Part:
        """The tree of the part between s and t with the vertices `inner`, and the edge (s, t) if `direct`."""
        vertices = _members(inner)
        nbytes = sum(self.graph.nbytes[v] for v in vertices)
        if not vertices:
            return Part(s, t, Kind.LEAF, 0, (), ())
        cuts = [] if direct else self._cut_vertices(s, t, vertices, inner)
        if cuts:
            children: list[Part] = []
            for u, v in pairwise((s, *cuts, t)):
                between = inner & _span(u, v)
                children.append(self.part(u, v, between, bool(self.after[u] >> v & 1)))
            return Part(s, t, Kind.LINEAR, nbytes, tuple(cuts), tuple(children))
        pieces = self._connected(inner)
        if direct or len(pieces) > 1:
            children = [self.part(s, t, p, False) for p in pieces]
            children += [Part(s, t, Kind.LEAF, 0, (), ())] if direct else []
            return Part(s, t, Kind.BRANCH, nbytes, (), tuple(children))
        children = self._others(s, t, vertices, inner)
        ends = {v for c in children for v in (c.source, c.target)} - {s, t}
        return Part(s, t, Kind.OTHER, nbytes, tuple(sorted(ends)), tuple(children))

    def _cut_vertices(self, s: int, t: int, vertices: list[int], inner: int) -> list[int]:
        """Vertices that no edge of the part jumps over."""
        cuts: list[int] = []
        reach = max(_members(self.after[s] & inner))  # farthest target of an edge from what is to the left
        for v in vertices:
            if reach <= v:
                cuts.append(v)
            targets = self.after[v] & (inner | 1 << t)
            reach = max(reach, targets.bit_length() - 1)
        return cuts

    def _connected(self, inner: int) -> list[int]:
        """The connected pieces of `inner`."""
        pieces: list[int] = []
        rest = inner
        while rest:
            piece, new = 0, rest & -rest
            while new:
                piece |= new
                around = 0
                for v in _members(new):
                    around |= self.touching[v]
                new = around & inner & ~piece
            pieces.append(piece)
            rest &= ~piece
        return pieces

    def _others(self, s: int, t: int, vertices: list[int], inner: int) -> list[Part]:
        everything = inner | 1 << s | 1 << t
        order = [s, *vertices, t]
        above, below = self._reachable(order, everything)  # ancestors, descendants inside the part
        found: list[tuple[int, int, int, int]] = []  # edges (negative), u, v, inner vertices
        for i, u in enumerate(order):
            for v in order[i + 1 :]:
                if (u, v) == (s, t) or not below[u] >> v & 1:
                    continue
                between = self._largest(u, v, everything, above, below)
                edges = self._edges(between | 1 << u | 1 << v, everything)
                if edges and self._is_one(u, v, between):
                    found.append((-edges, u, v, between))
        found.sort()
        taken: set[tuple[int, int]] = set()
        children: list[Part] = []
        for _, u, v, between in found:
            own = self._edge_list(between | 1 << u | 1 << v)
            if taken.isdisjoint(own):
                taken.update(own)
                children.append(self.part(u, v, between, bool(self.after[u] >> v & 1)))
        return children

    def _reachable(self, order: list[int], everything: int) -> tuple[dict[int, int], dict[int, int]]:
        above: dict[int, int] = {}
        below: dict[int, int] = {}
        for v in order:
            above[v] = 0
            for u in _members(self.before[v] & everything):
                above[v] |= above[u] | 1 << u
        for v in reversed(order):
            below[v] = 0
            for w in _members(self.after[v] & everything):
                below[v] |= below[w] | 1 << w
        return above, below

    def _largest(self, u: int, v: int, everything: int, above: dict[int, int], below: dict[int, int]) -> int:
        """The most vertices between u and v of which none touches anything outside. A vertex that does goes, and with
        it all between u and v that it depends on or that depend on it."""
        inside = below[u] & above[v]
        outside = everything & ~(inside | 1 << u | 1 << v)
        gone = 0
        new = sum(1 << w for w in _members(inside) if self.touching[w] & outside)
        while new:
            gone |= new
            related = 0
            for w in _members(new):
                related |= above[w] | below[w]
            new = related & inside & ~gone
        return inside & ~gone

    def _is_one(self, u: int, v: int, between: int) -> bool:
        """Whether u, v and what is between them hang together."""
        everything = between | 1 << u | 1 << v
        return len(self._connected(everything)) == 1

    def _edges(self, members: int, everything: int) -> int:
        return sum((self.after[v] & members & everything).bit_count() for v in _members(members))

    def _edge_list(self, members: int) -> list[tuple[int, int]]:
        return [(v, w) for v in _members(members) for w in _members(self.after[v] & members)]


def _members(mask: int) -> list[int]:
    out: list[int] = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out


def _span(u: int, v: int) -> int:
    """The mask of all numbers strictly between u and v."""
    return (1 << v) - (1 << (u + 1))
