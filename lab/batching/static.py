"""Static batching: a batch starts full, runs until its last request is done, and only then makes room.

The batch is a rectangle: prompts are padded to the longest one and finished rows are computed to the end. This
is what a server does that treats generation like any other fixed-size model call (see Orca, OSDI'22, section 3).
"""

from __future__ import annotations

from lab.batching.protocol import Admission, QueueView
from lab.errors import BadPolicy


class Static:
    """Wait for `max_batch` requests (fewer only when no more can arrive), then run them to the end."""

    name = "static"
    attention = "padded"
    delivery = "batch"
    carries_finished = True
    admits_together = True

    def __init__(self, max_batch: int = 8):
        if max_batch < 1:
            raise BadPolicy(f"static batching with max_batch {max_batch}; it must be at least 1")
        self.max_batch = max_batch

    def admit(self, view: QueueView) -> Admission:
        """Slots open only between batches."""
        if view.running or not view.waiting:
            return Admission(0)
        if view.waiting < self.max_batch and view.more_expected:
            return Admission(0)
        return Admission(self.max_batch)
