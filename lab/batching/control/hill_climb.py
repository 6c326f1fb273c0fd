"""TensorFlow Serving's hill climb: try a limit for a while, keep going while latency falls, turn when it rises."""

from __future__ import annotations

from lab.batching.control.protocol import AT_ONCE, Limits
from lab.batching.protocol import QueueView
from lab.batching.served import Served
from lab.errors import BadPolicy

MAX_STEP, MIN_STEP = 1 / 8, 1 / 128  # of the limit


class HillClimb:
    """Climb on the batch limit; after every `average_over` batches compare mean latency with the last time's.

        better:  step ← 2·step if it was better the time before as well, else step/2      (1/128 ≤ step ≤ 1/8)
        worse:   turn round, with the same step, to confirm that it was better there
        limit ← limit + direction·step·limit, within 1 … most

    `AdaptiveSharedBatchScheduler` in TensorFlow's `batching_util` (average over 1,000 batches) does this with the
    number of batches in flight; our engine runs one batch at a time, so here the same climb sets its size. Latency
    of a batch is the wait of its oldest request plus its run. A limit between two whole numbers alternates between
    them in proportion (TensorFlow draws lots). Valid where latency has one valley and the load holds still
    meanwhile: a change of traffic looks like an effect of the last step.
    """

    name = "hill-climb"

    def __init__(self, average_over: int = 100, start: float = 8.0, most: float = 64.0):
        if average_over < 1 or not 1 <= start <= most:
            raise BadPolicy(f"hill climb over {average_over} batches from {start} to at most {most}; 1 ≤ start ≤ most")
        self.average_over, self.start, self.most = average_over, start, most
        self.reset()

    def reset(self) -> None:
        """Go back to the foot of the hill."""
        self.limit = self.start
        self.step, self.direction = MAX_STEP, 1
        self._last_latency: float | None = None
        self._was_better = False
        self._latencies: list[float] = []
        self._carry = 0.0  # what rounding down has kept back so far

    def limits(self, queue: QueueView, now: float) -> Limits:
        """The limit rounded to one of its two neighbours; no timer."""
        return Limits(int(self.limit + self._carry), AT_ONCE)

    def observe(self, served: Served) -> None:
        """Collect latencies; move after `average_over` of them."""
        self._carry = (self._carry + self.limit) % 1
        self._latencies.append(served.waited + served.seconds)
        if len(self._latencies) >= self.average_over:
            mean = sum(self._latencies) / len(self._latencies)
            self._latencies.clear()
            self._move(mean)

    def _move(self, latency: float) -> None:
        better = self._last_latency is None or latency < self._last_latency
        if better and self._last_latency is not None:
            self.step = min(MAX_STEP, max(MIN_STEP, self.step * (2 if self._was_better else 0.5)))
        elif not better:
            self.direction = -self.direction
        self.limit = min(self.most, max(1.0, self.limit * (1 + self.direction * self.step)))
        self._last_latency, self._was_better = latency, better
