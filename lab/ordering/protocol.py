"""The ordering axis: WHICH waiting request is next? Ties are always first come, first served."""

from __future__ import annotations

from typing import Protocol

from lab.request import Request


class Ordering(Protocol):
    """Smaller keys go first. `static` promises that a key does not change while a request waits.

    An order may also have `max_wait`: seconds after its arrival from which on a request goes before all who have
    waited less, oldest first, whatever keys and priorities say. `bind(matched, block_size)` gives an order the prefix
    cache's match; `arrange(candidates, now)` replaces the comparison of keys where turns matter more than keys.
    """

    name: str
    static: bool

    def key(self, request: Request, now: float) -> float | tuple[float, ...]:
        """Sort key of a waiting request at time `now` (seconds on the driver's clock)."""
        ...
