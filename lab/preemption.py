"""The preemption axis: WHO yields when memory ends, and what becomes of its blocks.

Two rules hold for every policy and are kept by the scheduler: the oldest running request is never a victim (so
somebody always makes progress), and a victim comes back only when all of its tokens fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from lab.errors import BadPolicy
from lab.request import Request


class Preemption(Protocol):
    """Chooses a victim, and says whether its blocks are kept on the host (`on_host`) or dropped."""

    name: str
    on_host: bool

    def victim(self, candidates: Sequence[Request]) -> Request:
        """One of `candidates` (never empty, never the oldest running request)."""
        ...


#: The candidate with the largest value yields; ties go to the latest arrival.
RULES: dict[str, Callable[[Request], Any]] = {
    "latest": lambda request: request.order,  # has waited least so far (vLLM)
    "least-progress": lambda request: (-request.num_computed, request.order),  # least to compute again
    "most-blocks": lambda request: (len(request.block_table), request.order),  # fewest victims
    "lowest-priority": lambda request: (-request.priority, request.order),
}


class Recompute:
    """A victim's blocks are dropped and its tokens computed again when it returns.

    `rule` chooses it: latest (the default), least-progress, most-blocks or lowest-priority.
    """

    name = "recompute"
    on_host = False

    def __init__(self, rule: str = "latest"):
        if rule not in RULES:
            raise BadPolicy(f"victim rule {rule!r} is not known; there are {', '.join(RULES)}")
        self.rule = rule

    def victim(self, candidates: Sequence[Request]) -> Request:
        """The candidate the rule points at."""
        return max(candidates, key=RULES[self.rule])


class Swap(Recompute):
    """A victim's blocks are copied to host memory, and back when it returns. `rule` as in Recompute.

    Where the host has no room left, the victim is recomputed after all. Over PCIe a block costs its bytes divided
    by the link's bandwidth, twice; on a CPU "host" and "device" are the same memory and the copy is nearly free.
    """

    name = "swap"
    on_host = True
