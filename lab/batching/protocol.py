"""The batching axis: WHEN may a batch start, and HOW MANY may join it now?"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from lab.request import Request


class QueueView(NamedTuple):
    """All that a batching policy may see. Times are seconds on the driver's clock."""

    now: float
    waiting: int
    oldest_arrival: float | None  # of the waiting requests
    running: int
    more_expected: bool  # False once no further request can arrive
    newest_arrival: float | None = None  # of the waiting requests


class Admission(NamedTuple):
    """`slots` requests may join now. With 0 slots, `wake_at` is when to ask again although nothing happened.

    The first in order join, unless `select` is given: called with all that wait, in order, it returns those who
    may join (perhaps nobody), and at most `slots` of them do.
    """

    slots: int
    wake_at: float | None = None
    select: Callable[[list[Request]], list[Request]] | None = None


class Batching(Protocol):
    """One policy, stateless or fed through `observe(step)`; `reset()`, if it has one, begins a new run.

    `steady`, if it has it and it is true, promises that `admit` gives the same slots as long as the same requests run
    and wait, and that `observe` need not see every one of such steps: a simulation may then take many at once.
    """

    name: str
    attention: str  # kernel it is used with by default: "padded" or "packed"
    delivery: str  # when users get tokens by default: "token" (at once) or "batch" (when the batch ends)
    carries_finished: bool  # finished requests stay in the batch, computed and thrown away, until all are done
    admits_together: bool  # all slots are filled at once, even beyond this step's token budget

    def admit(self, view: QueueView) -> Admission:
        """Decide on the waiting requests; called once per step, before the step is planned."""
        ...
