"""The waiting queue: sorted once where keys are static, a bounded window of candidates where they move.

Larger `Request.priority` goes before any key; ties of the key are first come, first served. Before all of them, and
oldest first, go those who have waited for `ordering.max_wait` seconds, if the order has such a limit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from itertools import islice
from math import inf

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
    def newest_arrival(self) -> float | None:
        """Arrival time of the request that has waited least."""
        return self._by_arrival[-1][0] if self._by_arrival else None

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
        overdue = self._overdue(now)
        late = [entry[-1] for entry in self._by_arrival[: min(overdue, count)]]
        return late + self._in_order(overdue, count - len(late), now)

    def _overdue(self, now: float) -> int:
        """How many have waited for the order's `max_wait`; they are the first by arrival."""
        max_wait = getattr(self.ordering, "max_wait", inf)
        return 0 if max_wait == inf else bisect_right(self._by_arrival, now - max_wait, key=lambda entry: entry[0])

    def _in_order(self, overdue: int, count: int, now: float) -> list[Request]:
        """`count` requests by their keys, the `overdue` oldest left out."""
        if not self.ordering.static:
            candidates = [entry[-1] for entry in self._by_arrival[overdue : overdue + self.window]]
            if hasattr(self.ordering, "arrange"):
                return self.ordering.arrange(candidates, now)[:count]
            return [entry[-1] for entry in sorted(self._entry(request, now) for request in candidates)[:count]]
        if not overdue:
            return [entry[-1] for entry in self._by_key[:count]]
        last = self._by_arrival[overdue - 1][:2]
        return list(islice((entry[-1] for entry in self._by_key if entry[2:4] > last), count))

    def reorder(self, ordering: Ordering, now: float) -> None:
        """Change the order while requests wait."""
        self.ordering = ordering
        self._by_key = sorted(self._entry(request, now) for request in self) if ordering.static else []
