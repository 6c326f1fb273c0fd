"""Continuous batching: the batch is made anew at every token iteration.

Finished requests leave at once and waiting ones take their place in the next step (iteration-level scheduling,
Orca, OSDI'22).
"""

from __future__ import annotations

from lab.batching.protocol import Admission, QueueView
from lab.errors import BadPolicy


class Continuous:
    """At most `max_running` requests run; every step admits as many as are missing."""

    name = "continuous"
    attention = "packed"
    delivery = "token"
    carries_finished = False
    admits_together = False

    def __init__(self, max_running: int = 16):
        if max_running < 1:
            raise BadPolicy(f"continuous batching with max_running {max_running}; it must be at least 1")
        self.max_running = max_running

    def admit(self, view: QueueView) -> Admission:
        """Fill up to `max_running`."""
        return Admission(self.max_running - view.running)
