"""Maximum flow by Dinic's algorithm (1970), and the minimum cut that it proves."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

INFINITE = float("inf")


class FlowNetwork:
    """A directed network with capacities; vertices are any hashable values."""

    def __init__(self) -> None:
        self._index: dict[Hashable, int] = {}
        self._names: list[Hashable] = []
        self._out: list[list[int]] = []  # edges leaving a vertex; edge e and its reverse e ^ 1 are stored in pairs
        self._head: list[int] = []
        self._room: list[float] = []  # what an edge can still carry

    def _vertex(self, name: Hashable) -> int:
        index = self._index.get(name)
        if index is None:
            index = self._index[name] = len(self._names)
            self._names.append(name)
            self._out.append([])
        return index

    def add_edge(self, tail: Hashable, head: Hashable, capacity: float) -> None:
        """An edge from `tail` to `head`."""
        u, v = self._vertex(tail), self._vertex(head)
        self._out[u].append(len(self._head))
        self._out[v].append(len(self._head) + 1)
        self._head += (v, u)
        self._room += (capacity, 0)

    def min_cut(self, source: Hashable, sink: Hashable) -> tuple[float, set[Hashable]]:
        """(capacity of the cheapest cut, the vertices on the source's side); the capacity is infinite if no cut is."""
        s, t = self._vertex(source), self._vertex(sink)
        total = 0.0
        while total < INFINITE:
            level = self._levels(s)
            if level[t] < 0:
                return total, {self._names[v] for v, depth in enumerate(level) if depth >= 0}
            total += self._blocking_flow(s, t, level)
        return total, set()

    def _levels(self, s: int) -> list[int]:
        """Distance of each vertex from `s` along edges with room; -1 where there is no way."""
        level = [-1] * len(self._names)
        level[s] = 0
        queue = deque([s])
        while queue:
            u = queue.popleft()
            for e in self._out[u]:
                v = self._head[e]
                if level[v] < 0 and self._room[e] > 0:
                    level[v] = level[u] + 1
                    queue.append(v)
        return level

    def _blocking_flow(self, s: int, t: int, level: list[int]) -> float:
        """Push flow along shortest ways until each has a full edge."""
        nexts = [0] * len(self._names)
        path: list[int] = []
        total = 0.0
        u = s
        while True:
            if u == t:
                pushed = min(self._room[e] for e in path)
                total += pushed
                if pushed == INFINITE:
                    return total
                for e in path:
                    self._room[e] -= pushed
                    self._room[e ^ 1] += pushed
                first = next(i for i, e in enumerate(path) if self._room[e] == 0)
                u = self._head[path[first] ^ 1]
                del path[first:]
                continue
            e = self._advance(u, nexts, level)
            if e >= 0:
                path.append(e)
                u = self._head[e]
            elif path:
                u = self._head[path.pop() ^ 1]
                nexts[u] += 1
            else:
                return total

    def _advance(self, u: int, nexts: list[int], level: list[int]) -> int:
        """The next edge from `u` one level deeper that has room; -1 if there is none."""
        edges = self._out[u]
        while nexts[u] < len(edges):
            e = edges[nexts[u]]
            if self._room[e] > 0 and level[self._head[e]] == level[u] + 1:
                return e
            nexts[u] += 1
        return -1
