"""The preemption axis: WHO yields when memory ends, and what becomes of its blocks.

Two rules hold for every policy and are kept by the scheduler: the oldest running request is never a victim (so
somebody always makes progress), and a victim comes back only when all of its tokens fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lab.request import Request


class Preemption(Protocol):
    """Chooses a victim; `keeps` says what of it stays resident."""

    name: str

    def victim(self, candidates: Sequence[Request]) -> Request:
        """One of `candidates` (never empty, never the oldest running request)."""
        ...


class Recompute:
    """The latest arrival yields; its blocks are dropped and its tokens computed again when it returns."""

    name = "recompute"

    def victim(self, candidates: Sequence[Request]) -> Request:
        """The request with the latest arrival has the least to lose and the shortest wait so far."""
        return max(candidates, key=lambda request: request.order)
