"""An ordering made from one function, so that a learner writes the rule and nothing else (exercise 09.3)."""

from __future__ import annotations

from collections.abc import Callable

from lab.request import Request


class NextRule:
    """`rule(waiting, now, limit)` returns the one of the waiting requests that goes next."""

    name = "rule"
    static = False

    def __init__(self, rule: Callable[[list[Request], float, float], Request], limit: float = 5.0):
        self.rule, self.limit = rule, limit

    def key(self, request: Request, now: float) -> float:
        """Not used: `arrange` decides."""
        return 0.0

    def arrange(self, candidates: list[Request], now: float) -> list[Request]:
        """The rule, asked until nobody is left."""
        left, order = list(candidates), []
        while left:
            chosen = self.rule(list(left), now, self.limit)
            left.remove(chosen)
            order.append(chosen)
        return order
