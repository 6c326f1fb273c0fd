"""A learner's order in the real scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from lab.ordering.prefix import LongestPrefix
from lab.request import Request


class Waiting(NamedTuple):
    """What an order may look at: who waits, since when, and how much of the prompt is cached."""

    id: int
    arrival: float
    cached: int


class OrderRule(LongestPrefix):
    """`rule(waiting, now)` returns the ids of all waiting requests, the next one first."""

    name = "mine"

    def __init__(self, rule: Callable[[Sequence[Waiting], float], Sequence[int]]):
        super().__init__()
        self.rule = rule

    def arrange(self, candidates: list[Request], now: float) -> list[Request]:
        """Ask the rule."""
        waiting = [Waiting(request.id, request.arrival_time, self.matched(request)) for request in candidates]
        by_id = {request.id: request for request in candidates}
        return [by_id[id] for id in self.rule(waiting, now)]
