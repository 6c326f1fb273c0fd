"""BentoML's rule: wait another tick only while that costs less than a larger batch saves."""

from __future__ import annotations

from collections import deque

from lab.batching.control.protocol import AT_ONCE, Limits
from lab.batching.protocol import QueueView
from lab.batching.served import Served
from lab.errors import BadPolicy


class MarginalCost:
    """Fit seconds = a·n + b over recent batches and wait while the next tick pays.

        wait  ⟺  n·(w_n + dt + a) ≤ decay·W          n requests wait, the newest for w_n seconds
                                                       W mean wait of the oldest request of recent batches

    One more tick costs the n that wait dt seconds each; W is what waiting has cost so far. Fit and W come from the
    last `samples` batches and are renewed every `refresh` seconds (BentoML, `_internal/marshal/dispatcher.py`).
    As w_n grows evenly, the moment at which the rule turns is known, and we set a timer for it instead of polling
    each millisecond. BentoML drops a request that cannot end within `max_latency` any more; we start its batch.

    W feeds on itself: where nobody had to wait, W = 0 and nobody is made to wait; at low load it is greedy.
    """

    name = "marginal-cost"

    def __init__(
        self,
        max_latency: float = 10.0,
        decay: float = 0.95,
        tick: float = 0.001,
        samples: int = 50,
        refresh: float = 5.0,
    ):
        if not (max_latency > 0 and 0 <= decay and tick >= 0 and samples >= 2):
            raise BadPolicy(
                f"marginal cost with max_latency {max_latency} s, decay {decay}, tick {tick} s, {samples} samples; "
                f"max_latency must be above 0, decay and tick at least 0, samples at least 2"
            )
        self.max_latency, self.decay, self.tick, self.refresh = max_latency, decay, tick, refresh
        self.samples = samples
        self.reset()

    def reset(self) -> None:
        """Nothing has been fitted: nobody waits."""
        self._seen: deque[Served] = deque(maxlen=self.samples)
        self._fitted_at = AT_ONCE
        self.per_request, self.per_batch, self.mean_wait = 0.0, 0.0, 0.0

    def limits(self, queue: QueueView, now: float) -> Limits:
        """Solve the rule for the time at which waiting stops to pay."""
        n = queue.waiting
        newest = queue.oldest_arrival if queue.newest_arrival is None else queue.newest_arrival
        pays_until = newest + self.decay * self.mean_wait / n - self.tick - self.per_request
        latest = queue.oldest_arrival + self.max_latency - (self.per_request * n + self.per_batch)
        return Limits(None, min(pays_until, latest))

    def observe(self, served: Served) -> None:
        """Keep the batch; fit anew when `refresh` seconds have passed."""
        if not served.waits:
            return
        self._seen.append(served)
        if served.end - self._fitted_at >= self.refresh:
            self._fitted_at = served.end
            self._fit()

    def _fit(self) -> None:
        """Least squares; the slope is 0 while all batches had the same size."""
        count = len(self._seen)
        self.mean_wait = sum(served.waited for served in self._seen) / count
        size = sum(served.size for served in self._seen) / count
        seconds = sum(served.seconds for served in self._seen) / count
        spread = sum((served.size - size) ** 2 for served in self._seen)
        joint = sum((served.size - size) * (served.seconds - seconds) for served in self._seen)
        self.per_request = max(0.0, joint / spread) if spread else 0.0
        self.per_batch = max(0.0, seconds - self.per_request * size)
