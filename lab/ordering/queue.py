"""The waiting queue: sorted once where keys are static, a bounded window of candidates where they move.

Larger `Request.priority` goes before any key; ties of the key are first come, first served.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from lab.ordering.protocol import Ordering
from lab.request import Request


class WaitingQueue:
    """Push and remove cost O(log n) comparisons; `first(k)` looks at k entries, or at `window` when keys move."""

    def __init__(self, ordering: Ordering, window: int = 128):
        self.ordering, self.window = ordering, window
        self._by_arrival: list[tuple[float, int, Request]] = []
        self._by_key: list[tuple] = []  # (-priority, key, arrival, id, request); unused when keys move

    def __len__(self) -> int:
        return len(self._by_arrival)

    def __iter__(self):
        """Requests by arrival."""
        return (entry[-1] for entry in self._by_arrival)

    @property
    def oldest_arrival(self) -> float | None:
        """Arrival time of the request that has waited longest."""
        return self._by_arrival[0][0] if self._by_arrival else None

    def _entry(self, request: Request, now: float) -> tuple:
        return (-request.priority, self.ordering.key(request, now), *request.order, request)

    def push(self, request: Request, now: float) -> None:
        """Add a request; its key is taken now."""
        insort(self._by_arrival, (*request.order, request))
        if self.ordering.static:
            insort(self._by_key, self._entry(request, now))

    def remove(self, request: Request) -> None:
        """Take out a request that waits. A static key is unchanged since `push`, so it is found by search."""
        del self._by_arrival[bisect_left(self._by_arrival, request.order, key=lambda entry: entry[:2])]
        if self.ordering.static:
            entry = self._entry(request, 0.0)[:-1]
            del self._by_key[bisect_left(self._by_key, entry, key=lambda held: held[:-1])]

    def first(self, count: int, now: float) -> list[Request]:
        """The next `count` requests in order. Moving keys are compared among the `window` oldest."""
        if self.ordering.static:
            return [entry[-1] for entry in self._by_key[:count]]
        candidates = (entry[-1] for entry in self._by_arrival[: self.window])
        return [entry[-1] for entry in sorted(self._entry(request, now) for request in candidates)[:count]]

    def reorder(self, ordering: Ordering, now: float) -> None:
        """Change the order while requests wait."""
        self.ordering = ordering
        self._by_key = sorted(self._entry(request, now) for request in self) if ordering.static else []
