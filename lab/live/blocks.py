"""The block map: who holds which block of the pool, after a step.

A Holding is a picture of the books between two steps, kept as runs of neighbouring blocks; only the thread that
drives the engine takes one. Everything else, colours and sums, is derived from it elsewhere.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from lab.engine import Engine

MAX_CELLS = 4096  # blocks that the page shows one by one; of larger pools it gets sums over neighbours


class Share(NamedTuple):
    """What one request holds."""

    request: int
    computed: int  # tokens in its blocks
    runs: array  # first block, how many, first block, how many, … in the order of its tokens


@dataclass(frozen=True, slots=True)
class Holding:
    """All blocks after step `index`, or while it runs: of each request that holds some, and of the cache alone."""

    index: int  # -1: before the first step
    num_blocks: int
    block_size: int
    shares: tuple[Share, ...]
    cached: array  # runs of blocks that only the prefix cache holds
    under_way: bool = False  # taken while the step was running, not after it

    @property
    def size(self) -> int:
        """Numbers in it: what it costs to keep."""
        return 16 + len(self.cached) + sum(4 + len(share.runs) for share in self.shares)

    def holders(self) -> dict[int, list[int]]:
        """Requests by block, for the blocks that some request holds."""
        found: dict[int, list[int]] = {}
        for share in self.shares:
            for block in blocks_of(share.runs):
                found.setdefault(block, []).append(share.request)
        return found

    def counts(self) -> dict[str, int]:
        """Blocks held by one request ("own"), by several ("shared"), by the cache alone ("cached"), and "free"."""
        held = self.holders()
        shared, cached = sum(len(requests) > 1 for requests in held.values()), sum(self.cached[1::2])
        own = len(held) - shared
        return {"own": own, "shared": shared, "cached": cached, "free": self.num_blocks - own - shared - cached}


def blocks_of(runs: array) -> Iterator[int]:
    """The blocks of runs, in order."""
    for place in range(0, len(runs), 2):
        yield from range(runs[place], runs[place] + runs[place + 1])


def runs_of(blocks: Iterable[int]) -> array:
    """Blocks as (first, how many) pairs, neighbours joined, their order kept."""
    runs, following = array("i"), -1
    for block in blocks:
        if block == following:
            runs[-1] += 1
        else:
            runs.append(block)
            runs.append(1)
        following = block + 1
    return runs


def holding(engine: Engine, index: int) -> Holding:
    """The books as they are. Call from the driving thread, between two steps. O(blocks in tables), and with a prefix
    cache O(blocks of the pool)."""
    memory = engine.memory
    running = [request for request in engine.scheduler.running if request.block_table]
    shares = tuple(Share(request.id, request.num_computed, runs_of(request.block_table)) for request in running)
    cached = array("i")
    if getattr(memory, "cache", None) is not None:
        held = {block for request in running for block in request.block_table}
        cached = runs_of(b for b, count in enumerate(memory.pool.references) if count and b not in held)
    return Holding(index, memory.num_blocks, memory.block_size, shares, cached)


def wire(holding: Holding, known: dict[int, tuple] | None = None) -> dict[str, Any]:
    """What the page gets: every share, or sums over `per` neighbouring blocks where the pool is too large for that.

    `known` is what the other side has of each share; shares whose blocks it has are sent without them, and `known`
    is brought up to date.
    """
    head = {"step": holding.index, "blocks": holding.num_blocks, "size": holding.block_size}
    head["under_way"] = holding.under_way
    if holding.num_blocks > MAX_CELLS:
        return head | {"counts": holding.counts(), **cells(holding)}
    held = []
    for share in holding.shares:
        runs = tuple(share.runs)
        held.append([share.request, share.computed, None if known and known.get(share.request) == runs else [*runs]])
    if known is not None:
        known.clear()
        known.update((share.request, tuple(share.runs)) for share in holding.shares)
    return head | {"counts": holding.counts(), "held": held, "cached": [*holding.cached]}


def cells(holding: Holding, most: int = MAX_CELLS) -> dict[str, Any]:
    """{"per", "cells"}, at most `most` of these: for every `per` neighbouring blocks [repeat, own, shared, cached,
    a request], equal neighbours joined. The request is the one with most blocks among them, -1 where none holds any."""
    per = -(-holding.num_blocks // most)
    sums: dict[int, list[Any]] = {}
    for block, requests in holding.holders().items():
        cell = sums.setdefault(block // per, [0, 0, 0, {}])
        cell[len(requests) > 1] += 1
        cell[3][requests[0]] = cell[3].get(requests[0], 0) + 1
    for block in blocks_of(holding.cached):
        sums.setdefault(block // per, [0, 0, 0, {}])[2] += 1
    found: list[list[int]] = []
    for place in range(-(-holding.num_blocks // per)):
        own, shared, cached, owners = sums.get(place, (0, 0, 0, {}))
        entry = [own, shared, cached, max(owners, key=owners.get) if owners else -1]
        if found and found[-1][1:] == entry:
            found[-1][0] += 1
        else:
            found.append([1, *entry])
    return {"per": per, "cells": found}
