"""Ageing: any order, until somebody has waited too long."""

from __future__ import annotations

from typing import Any

from lab.axes import describe, parse
from lab.errors import BadPolicy
from lab.numbers import real
from lab.ordering.protocol import Ordering
from lab.request import Request


class Aged:
    """`order` for all who have waited less than `limit` seconds; before them, oldest first, those who have longer.

    The queue takes those over the limit first (see `Ordering.max_wait`), whatever their key and whatever anybody's
    priority. What that bounds: a request is overtaken by later arrivals during its first `limit` seconds only, and
    from then on waits at most for those that are older. It does not bound the wait itself where requests come
    faster than they are served: then all are over the limit in the end and the order is first come, first served.

    `Aged("shortest-prompt", 5)`; further arguments go to the named order: `Aged("hybrid", 5, 0.008)`. The age is
    the time since arrival, also after a preemption. (xLLM pull request #2164 ages after 10 s; longest-prefix and
    shortest-first orders without it starve requests in production, sglang #31954.)
    """

    name = "aged"

    def __init__(self, order: str | Ordering = "shortest-prompt", limit: float = 5.0, *settings: Any, **named: Any):
        self.order: Ordering = parse("ordering", order, *settings, **named)
        if isinstance(self.order, Aged):
            raise BadPolicy(f"ageing of an aged order: {describe(self.order)} has a limit already")
        self.max_wait = real(limit, "ageing after (seconds)")
        self.static = self.order.static

    @property
    def spec(self) -> str:
        """`aged:hybrid:5:0.008`: the order's own arguments come last."""
        name, *settings = describe(self.order).split(":")
        return ":".join([self.name, name, f"{self.max_wait:g}", *settings])

    def __getattr__(self, name: str) -> Any:
        """Whatever else the order within can do (learn, for example)."""
        if name == "order":
            raise AttributeError(name)  # not made yet
        return getattr(self.order, name)

    def key(self, request: Request, now: float) -> float | tuple[float, ...]:
        """The key of the order within."""
        return self.order.key(request, now)
