"""First come, first served."""

from __future__ import annotations

from lab.request import Request


class Fcfs:
    """Oldest arrival first."""

    name = "fcfs"
    static = True

    def key(self, request: Request, now: float) -> float:
        """The arrival time."""
        return request.arrival_time
