"""Static batching: a batch starts full, runs until its last request is done, and only then makes room.

The batch is a rectangle: prompts are padded to the longest one and finished rows are computed to the end. This
is what a server does that treats generation like any other fixed-size model call (see Orca, OSDI'22, section 3).
"""

from __future__ import annotations

from lab.batching.protocol import Admission, QueueView
from lab.numbers import whole
from lab.request import Request


class Static:
    """Wait for `max_batch` requests (fewer only when no more can arrive), then run them to the end.

    With `bucket`, a batch holds requests of similar length only: each bucket is `bucket` tokens wide, and a batch
    starts when one bucket has `max_batch` requests. Rows of a batch are then padded by less than `bucket` tokens,
    and whoever has an unusual length waits for his like, perhaps until no more can arrive. It pays where rows are
    padded; with packed attention there is nothing to save.
    """

    name = "static"
    attention = "padded"
    delivery = "batch"
    carries_finished = True
    admits_together = True
    steady = True

    def __init__(self, max_batch: int = 8, bucket: int | None = None):
        self.max_batch = whole(max_batch, "static batching with max_batch")
        self.bucket = None if bucket is None else whole(bucket, "static batching with buckets of width")

    def admit(self, view: QueueView) -> Admission:
        """Slots open only between batches."""
        if view.running or not view.waiting:
            return Admission(0)
        if view.waiting < self.max_batch and view.more_expected:
            return Admission(0)
        if self.bucket is None:
            return Admission(self.max_batch)
        return Admission(self.max_batch, select=self._full_bucket if view.more_expected else self._any_bucket)

    def _full_bucket(self, waiting: list[Request]) -> list[Request]:
        """The first bucket to fill up when the requests are dealt out in order; nobody if none does."""
        buckets: dict[int, list[Request]] = {}
        for request in waiting:
            members = buckets.setdefault(self._bucket(request), [])
            members.append(request)
            if len(members) == self.max_batch:
                return members
        return []

    def _any_bucket(self, waiting: list[Request]) -> list[Request]:
        """A full bucket, or else the bucket of the request that is next."""
        mates = [request for request in waiting if self._bucket(request) == self._bucket(waiting[0])]
        return self._full_bucket(waiting) or mates

    def _bucket(self, request: Request) -> int:
        """Bucket k holds lengths k·width + 1 to (k + 1)·width."""
        return (request.num_tokens - 1) // self.bucket
