"""The two rules that never learn: wait a fixed time, or do not wait."""

from __future__ import annotations

from lab.batching.control.protocol import AT_ONCE, Limits
from lab.batching.protocol import QueueView
from lab.errors import BadPolicy
from lab.numbers import real


class Fixed:
    """Wait until the oldest request is `delay` seconds old.

        wait_until = oldest arrival + delay

    Triton's `max_queue_delay_microseconds` (default 0), TensorFlow Serving's `batch_timeout_micros`, Ray Serve's
    `batch_wait_timeout_s` (default 0), TorchServe's `maxBatchDelay`.
    """

    name = "fixed"

    def __init__(self, delay: float = 0.002):
        self.delay = real(delay, "a batching delay (seconds) of")

    def limits(self, queue: QueueView, now: float) -> Limits:
        """The same delay for every batch."""
        return Limits(None, queue.oldest_arrival + self.delay)


class Greedy:
    """No timer: whenever the engine is free it takes all that wait.

    It adapts by itself. The busier the engine, the more requests arrive during a batch, the larger the next one.
    With Poisson arrivals at rate λ and a batch of b taking α·b + τ₀ seconds, mean latency is at most min(φ₀, φ₁):

        φ₀ = (α + τ₀) / (2(1 - λα)) · (1 + 2λτ₀ + (1 - λτ₀)/(1 + λα))
        φ₁ = (3/2)·τ₀/(1 - λα) + (α/2)·(λα + 2)/(1 - λ²α²)

    (Inoue, Performance Evaluation 2021, arXiv 1912.06322; valid for λα < 1 and without a limit on b; φ₁ is within
    about one per cent of the truth where batches are larger than a few requests.)
    """

    name = "greedy"

    def limits(self, queue: QueueView, now: float) -> Limits:
        """Nothing to wait for."""
        return Limits(None, AT_ONCE)


def greedy_latency(rate: float, per_request: float, per_batch: float) -> float:
    """Inoue's bound on the mean latency of Greedy, seconds: `rate` = λ, `per_request` = α, `per_batch` = τ₀."""
    load = rate * per_request
    if not 0 < load < 1:
        raise BadPolicy(f"a load of {load:.3g} (rate × seconds per request); the queue is stable below 1 only")
    phi_0 = (per_request + per_batch) / (2 * (1 - load))
    phi_0 *= 1 + 2 * rate * per_batch + (1 - rate * per_batch) / (1 + load)
    phi_1 = 1.5 * per_batch / (1 - load) + per_request / 2 * (load + 2) / (1 - load**2)
    return min(phi_0, phi_1)
