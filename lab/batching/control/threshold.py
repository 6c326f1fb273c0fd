"""Two thresholds on the load: no delay when it is calm, some when it is busier, most of it at the peak."""

from __future__ import annotations

from collections import deque

from lab.batching.control.protocol import AT_ONCE, Limits
from lab.batching.protocol import QueueView
from lab.batching.served import Served
from lab.errors import BadPolicy


class Threshold:
    """A delay in three steps, by the share of time the engine was busy over the last `window` batches.

        busy < low: 0          low ≤ busy < high: delay          busy ≥ high: peak

    "Near 0 ms at low load, 5 to 10 ms at the peak" is advice one reads often (Fregly, AI Systems Performance
    Engineering, ch. 16, says that vLLM does it; its code has no such timer). No source gives the rule itself, so
    load measure and thresholds are ours. Where it can help: never for one engine that is busy anyway, because
    requests then wait for the running batch and a timer only adds to that.
    """

    name = "threshold"

    def __init__(
        self, delay: float = 0.005, peak: float = 0.010, low: float = 0.5, high: float = 0.8, window: int = 16
    ):
        if not (0 <= delay <= peak and 0 <= low <= high):
            raise BadPolicy(f"delays {delay} and {peak} s at loads {low} and {high}; both pairs must rise from 0 up")
        self.delay, self.peak, self.low, self.high, self.window = delay, peak, low, high, window
        self.reset()

    def reset(self) -> None:
        """Forget what was seen."""
        self._seen: deque[Served] = deque(maxlen=self.window)

    @property
    def busy(self) -> float:
        """Share of the time since the start of the oldest batch seen in which a batch ran."""
        if not self._seen:
            return 0.0
        elapsed = self._seen[-1].end - self._seen[0].start
        return sum(served.seconds for served in self._seen) / elapsed if elapsed else 0.0

    def limits(self, queue: QueueView, now: float) -> Limits:
        """The delay of the present load, counted from the oldest arrival."""
        busy = self.busy if len(self._seen) > 1 else 0.0
        if busy < self.low:
            return Limits(None, AT_ONCE)
        return Limits(None, queue.oldest_arrival + (self.delay if busy < self.high else self.peak))

    def observe(self, served: Served) -> None:
        """Remember when it ran."""
        self._seen.append(served)
