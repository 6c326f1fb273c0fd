"""Binary search for the batch size whose latency meets an objective, redone for ever because traffic changes."""

from __future__ import annotations

from lab.batching.control.protocol import AT_ONCE, Limits
from lab.batching.protocol import QueueView
from lab.batching.served import Served
from lab.errors import BadPolicy


class SlaBinarySearch:
    """Keep an interval [low, high] of batch sizes around the one that takes `slo` seconds.

    With τ and b the mean seconds and mean size of the last `window` batches, D = slo and ε = tolerance:

        τ > D + ε:   high ← max(b, low + α)               low ← max(low - δ, least)
        τ < D - ε:   low ← min(b, high - α)               high ← min(high + δ, most)
        otherwise:   high ← min(b + ⌊α/2⌋, most)          low ← max(b - ⌊α/2⌋, least)
        size ← ⌊(low + high)/2⌋

    α (`gap`) keeps the interval open, δ (`slack`) lets the far end recover when the load changes (Pang et al., arXiv
    2503.05248, algorithm 2; Daft runs it with α = 16, δ = 4). The paper steers the time of one decode step: use it
    with continuous batching. In dynamic batching τ is the time of a whole batch. Batches that the queue could not
    fill pull b, and with it `low`, down; `high` then rises to `most`, so the size stays above what is needed.
    """

    name = "sla-search"

    def __init__(
        self,
        slo: float = 0.050,
        tolerance: float | None = None,
        least: int = 1,
        most: int = 64,
        gap: int = 4,
        slack: int = 2,
        window: int = 16,
    ):
        tolerance = 0.05 * slo if tolerance is None else tolerance
        if not (slo > 0 and 0 <= tolerance < slo and 1 <= least <= most and gap >= 1 and slack >= 0 and window >= 1):
            raise BadPolicy(
                f"SLA search for {slo} ± {tolerance} s between sizes {least} and {most}, gap {gap}, slack {slack}, "
                f"window {window}; 0 ≤ tolerance < slo, 1 ≤ least ≤ most, gap and window at least 1"
            )
        self.slo, self.tolerance, self.least, self.most = slo, tolerance, least, most
        self.gap, self.slack, self.window = gap, slack, window
        self.reset()

    def reset(self) -> None:
        """Search everywhere."""
        self.low, self.high = float(self.least), float(self.most)
        self._seen: list[Served] = []

    @property
    def size(self) -> int:
        """The middle of the interval."""
        return max(self.least, int((self.low + self.high) / 2))

    def limits(self, queue: QueueView, now: float) -> Limits:
        """The present size; no timer."""
        return Limits(self.size, AT_ONCE)

    def observe(self, served: Served) -> None:
        """Search on after `window` batches."""
        self._seen.append(served)
        if len(self._seen) >= self.window:
            seconds = sum(each.seconds for each in self._seen) / len(self._seen)
            size = sum(each.size for each in self._seen) / len(self._seen)
            self._seen.clear()
            self._narrow(seconds, size)

    def _narrow(self, seconds: float, size: float) -> None:
        if seconds > self.slo + self.tolerance:
            self.high = max(size, self.low + self.gap)
            self.low = max(self.low - self.slack, self.least)
        elif seconds < self.slo - self.tolerance:
            self.low = min(size, self.high - self.gap)
            self.high = min(self.high + self.slack, self.most)
        else:
            self.high = min(size + self.gap // 2, self.most)
            self.low = max(size - self.gap // 2, self.least)
