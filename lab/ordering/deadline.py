"""Deadlines: absolute times (`Request.deadline`) by which a request wants its first token."""

from __future__ import annotations

from math import inf

from lab.numbers import real
from lab.request import Request


class EarliestDeadline:
    """The deadline that comes first goes first; requests without one come last.

        key = deadline, or infinity

    Of all orders of jobs that are all there, on one machine, this one has the smallest greatest lateness (Jackson
    1955; with arrivals in between that needs preemption, Liu and Layland 1973). Under overload it is a bad order:
    it spends its time on requests that are late already.
    """

    name = "earliest-deadline"
    static = True

    def key(self, request: Request, now: float) -> float:
        """The absolute deadline."""
        return inf if request.deadline is None else request.deadline


class Hybrid:
    """Deadline and length in one key: short requests overtake those whose deadline is not much earlier.

        key = arrival + TTFT target + alpha · tokens to compute          (seconds)

    arrival + target is the request's deadline, or arrival + `target` where it has none. `alpha` is in seconds per
    token: 0 is EarliestDeadline (first come, first served where all targets are equal), infinity would be
    ShortestRemaining. Niyama (arXiv 2503.22562; QoServe, ASPLOS'26) uses 0.008; a good start is the seconds that
    one prompt token takes.
    """

    name = "hybrid"
    static = True

    def __init__(self, alpha: float = 0.008, target: float = 0.0):
        self.alpha = real(alpha, "hybrid order with alpha (seconds per token)")
        self.target = real(target, "hybrid order with target (seconds)")

    def key(self, request: Request, now: float) -> float:
        """The deadline, pushed back by what there is to compute."""
        deadline = request.arrival_time + self.target if request.deadline is None else request.deadline
        return deadline + self.alpha * request.remaining
