"""Additive increase, multiplicative decrease of the batch size, as TCP does with its window."""

from __future__ import annotations

from lab.batching.control.protocol import AT_ONCE, Limits
from lab.batching.protocol import QueueView
from lab.batching.served import Served
from lab.errors import BadPolicy


class Aimd:
    """Find the largest batch that runs within `slo` seconds.

        b ← b + step       when a batch of b took at most slo
        b ← backoff·b      when a batch took longer

    Clipper (Crankshaw et al., NSDI'17, section 4.3) with a back-off of 10 %; there is no timer. We keep b as a real
    number and round down when it is used: rounding each back-off up to a whole number, as ⌈0.9·b⌉, would never get
    below 9, because ⌈0.9·9⌉ = 9. A batch that did not fill its limit says nothing about a larger limit and does
    not raise it. Valid where a batch's seconds grow with its size; with generated text they depend on the longest
    answer at least as much.
    """

    name = "aimd"

    def __init__(self, slo: float = 0.5, step: float = 1.0, backoff: float = 0.9, start: float = 1.0):
        if not (slo > 0 and step > 0 and 0 < backoff < 1 and start >= 1):
            raise BadPolicy(
                f"AIMD with slo {slo} s, step {step}, backoff {backoff}, start {start}; "
                f"slo and step must be above 0, backoff between 0 and 1, start at least 1"
            )
        self.slo, self.step, self.backoff, self.start = slo, step, backoff, start
        self.reset()

    def reset(self) -> None:
        """Go back to the first size."""
        self.size = self.start

    def limits(self, queue: QueueView, now: float) -> Limits:
        """As many as wait, up to the present size."""
        return Limits(int(self.size), AT_ONCE)

    def observe(self, served: Served) -> None:
        """Compare the batch's seconds with the objective."""
        if served.seconds > self.slo:
            self.size = max(1.0, self.backoff * self.size)
        elif served.size >= int(self.size):
            self.size += self.step
