"""Dynamic batching made from one function, so that a learner writes the start rule and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from lab.batching.protocol import Admission, QueueView

StartFunction = Callable[[int, int, float, int, float], int]


class StartRule:
    """Whole batches whose start is `rule(waiting, running, waited, max_batch, delay)`: how many start now.

    `waited` is the age of the oldest request that waits, in seconds. The timer is set for its `delay`.
    """

    name = "start-rule"
    attention = "padded"
    delivery = "batch"
    carries_finished = True
    admits_together = True

    def __init__(self, rule: StartFunction, max_batch: int = 8, delay: float = 0.002):
        self.rule, self.max_batch, self.delay = rule, max_batch, delay

    def admit(self, view: QueueView) -> Admission:
        """Asked at each arrival, at the end of each step, and when the timer fires."""
        if not view.waiting:
            return Admission(0)
        waited = round(view.now - view.oldest_arrival, 9)  # so that a timer of 2 ms fires at 2 ms
        slots = int(self.rule(view.waiting, view.running, waited, self.max_batch, self.delay))
        timer = view.oldest_arrival + self.delay
        return Admission(slots, wake_at=timer if timer > view.now else None)
