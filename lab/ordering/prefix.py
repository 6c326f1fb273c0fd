"""Orders that know the prefix cache: serve now what the cache already holds, before it is evicted.

Each is bound to the memory's match by the scheduler. Matching is against the whole prompt, before any chunking.
Keys move with every insertion and eviction, so the queue compares a bounded window of candidates. All of them can
starve a request that shares nothing (sglang issue 31954); `aged:` bounds that.
"""

from __future__ import annotations

from collections.abc import Callable

from lab.memory.content import block_contents
from lab.numbers import whole
from lab.request import Request
from lab.trace import StepTrace


class LongestPrefix:
    """Most cached prompt tokens first (SGLang's lpm, arXiv:2312.07104, section 3).

    Equivalent to walking the batch's radix tree depth-first, and so optimal for a fixed set of requests and a cache
    that holds the longest of them (theorem 3.1 there); online it is a heuristic.
    """

    name = "longest-prefix"
    static = False

    def __init__(self) -> None:
        self.matched: Callable[[Request], int] = lambda request: 0

    def bind(self, matched: Callable[[Request], int], block_size: int) -> None:
        """`matched(request)` is the number of its tokens that are cached now."""
        self.matched = matched

    def key(self, request: Request, now: float) -> float:
        """Cached tokens, more first."""
        return -self.matched(request)


class Hrrn(LongestPrefix):
    """Highest response ratio next: (waited + uncached) / uncached, both in prefill tokens (SGLang's hrrn).

    `waited` is the number of prompt tokens the engine has computed since this request was first looked at, so a
    request that shares nothing rises until it is served; a short one rises faster.
    """

    name = "hrrn"

    def __init__(self) -> None:
        super().__init__()
        self._computed = 0
        self._since: dict[int, int] = {}

    def reset(self) -> None:
        """Begin a new run."""
        self._computed, self._since = 0, {}

    def observe(self, step: StepTrace) -> None:
        """Count prompt tokens; a row of more than one token is (part of) a prompt."""
        self._computed += sum(row.num_tokens for row in step.rows if row.num_tokens > 1)
        for event in step.events:
            if event.kind in ("admitted", "aborted"):
                self._since.pop(event.request, None)

    def key(self, request: Request, now: float) -> float:
        """The ratio, larger first."""
        waited = self._computed - self._since.setdefault(request.id, self._computed)
        uncached = max(1, request.num_tokens - self.matched(request))
        return -(waited + uncached) / uncached


class KLpm(LongestPrefix):
    """The oldest request, then k − 1 longest-prefix matches, and again (k-LPM, NeurIPS'25, arXiv:2502.04677).

    k = 1 is first come, first served; a large k is longest prefix first. Between two turns of the oldest lie k − 1
    others, which bounds how often it can be overtaken.
    """

    name = "k-lpm"

    def __init__(self, k: int = 4):
        super().__init__()
        self.k = whole(k, "k-lpm with k")
        self._turn = 0  # admissions since the last turn of the oldest began, modulo k

    def reset(self) -> None:
        """Begin a new run with the turn of the oldest."""
        self._turn = 0

    def observe(self, step: StepTrace) -> None:
        """Each admission is one turn."""
        self._turn = (self._turn + sum(event.kind == "admitted" for event in step.events)) % self.k

    def arrange(self, candidates: list[Request], now: float) -> list[Request]:
        """Candidates (by arrival) in the order of their turns."""
        by_match = sorted(candidates, key=lambda request: (self.key(request, now), *request.order))
        by_age = iter(candidates)
        matches = iter(by_match)
        taken: set[int] = set()
        order = []
        for turn in range(self._turn, self._turn + len(candidates)):
            source = by_age if turn % self.k == 0 else matches
            request = next(request for request in source if request.id not in taken)
            taken.add(request.id)
            order.append(request)
        return order


class DepthFirst:
    """The oracle for a fixed set of requests: depth-first through the tree of their prompts.

    Sorting prompts block by block visits that tree depth-first. Optimal hit rate for a static batch when the cache
    holds the longest request (SGLang, theorem 3.1); arrival times are ignored.
    """

    name = "depth-first"
    static = True

    def __init__(self) -> None:
        self.block_size = 1

    def bind(self, matched: Callable[[Request], int], block_size: int) -> None:
        """Only the block size matters here."""
        self.block_size = block_size

    def key(self, request: Request, now: float) -> list[tuple]:
        """The prompt's block contents."""
        return block_contents(request, self.block_size, request.num_prompt // self.block_size)
