"""What a controller is: it sees the queue and what became of each batch, and sets the limits of the next one."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from lab.batching.protocol import QueueView

AT_ONCE = float("-inf")  # as `wait_until`: there is nothing to wait for


class Limits(NamedTuple):
    """The next batch starts when `max_batch` requests wait (None: the policy's own limit) or at `wait_until`."""

    max_batch: int | None
    wait_until: float  # seconds on the driver's clock; a time in the past means now


class Controller(Protocol):
    """One rule. Published ones set a delay or a size, so the answer holds both.

    It may also have `observe(served)`, called with each `Served` batch (dynamic batching) or step (continuous);
    `reset()`, which forgets what it has learned, called when an engine is built; and `only_continuous = True` when
    it makes no sense where batches start only while nobody runs.
    """

    name: str

    def limits(self, queue: QueueView, now: float) -> Limits:
        """Limits of the next batch. At least one request waits; asked again at every arrival and timer."""
        ...
