"""A batching policy made from one function, so that a learner writes the rule and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from lab.batching.protocol import Admission, QueueView


class JoiningRule:
    """Continuous batching whose only decision is `rule(waiting, running, max_running)`: how many may join now."""

    name = "rule"
    attention = "packed"
    delivery = "token"
    carries_finished = False
    admits_together = False

    def __init__(self, rule: Callable[[int, int, int], int], max_running: int = 8):
        self.rule, self.max_running = rule, max_running

    def admit(self, view: QueueView) -> Admission:
        """Asked before every step."""
        return Admission(int(self.rule(view.waiting, view.running, self.max_running)))
