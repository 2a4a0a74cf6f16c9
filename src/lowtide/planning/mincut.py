"""mincut: the cheapest cut of a directed graph with integer capacities (Dinic 1970)."""

from __future__ import annotations

FAR = 1 << 62  # the capacity of an edge that must not be cut


class Network:
    """A directed graph. Edges are kept in pairs: edge e and its way back, e ^ 1.

    Attributes:
        flow: what the cheapest cut costs, once it was asked for.
    """

    def __init__(self, nodes: int) -> None:
        self.edges: list[list[int]] = [[] for _ in range(nodes)]
        self.to: list[int] = []
        self.left: list[int] = []  # capacity that is left
        self.flow = 0

    def edge(self, a: int, b: int, capacity: int) -> None:
        """An edge from node `a` to node `b`."""
        self.edges[a].append(len(self.to))
        self.edges[b].append(len(self.to) + 1)
        self.to += [b, a]
        self.left += [capacity, 0]

    def cut(self, source: int, sink: int) -> list[bool]:
        """Per node whether it is on the sink's side of a cheapest cut; of all such cuts the one whose sink side is
        smallest. O(V^2 E), in practice a few passes over the graph. Capacities are used up."""
        while True:
            level = self._levels(source, sink)
            if level[sink] < 0:
                break
            self._block(level, source, sink)
        return self._reaching(sink)

    def _levels(self, source: int, sink: int) -> list[int]:
        level = [-1] * len(self.edges)
        level[source] = 0
        row = [source]
        to, left = self.to, self.left
        while row and level[sink] < 0:
            following: list[int] = []
            for a in row:
                for e in self.edges[a]:
                    b = to[e]
                    if left[e] and level[b] < 0:
                        level[b] = level[a] + 1
                        following.append(b)
            row = following
        return level

    def _block(self, level: list[int], source: int, sink: int) -> None:
        """Push along shortest paths until each has a full edge."""
        to, left, edges = self.to, self.left, self.edges
        at = [0] * len(edges)
        path: list[int] = []
        a = source
        while True:
            if a == sink:
                amount = min(left[e] for e in path)
                self.flow += amount
                first = -1
                for k, e in enumerate(path):
                    left[e] -= amount
                    left[e ^ 1] += amount
                    if first < 0 and not left[e]:
                        first = k
                a = to[path[first] ^ 1]
                del path[first:]
                continue
            out, k = edges[a], at[a]
            while k < len(out) and not (left[out[k]] and level[to[out[k]]] == level[a] + 1):
                k += 1
            at[a] = k
            if k < len(out):
                path.append(out[k])
                a = to[out[k]]
            elif path:
                level[a] = -1  # a dead end
                a = to[path.pop() ^ 1]
                at[a] += 1
            else:
                return

    def _reaching(self, sink: int) -> list[bool]:
        """Nodes from which the sink can still be reached."""
        reaching = [False] * len(self.edges)
        reaching[sink] = True
        todo = [sink]
        while todo:
            b = todo.pop()
            for e in self.edges[b]:
                a = self.to[e]
                if self.left[e ^ 1] and not reaching[a]:
                    reaching[a] = True
                    todo.append(a)
        return reaching
