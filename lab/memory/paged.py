"""Paged memory: block tables over a pool, with an optional prefix cache and room on the host.

A request's keys and values live in fixed-size blocks that need not be neighbours; its block table lists them in
order (PagedAttention, SOSP'23). Blocks may be shared: by forked requests until one of them writes (copy-on-write),
and by requests that begin with the same tokens (prefix cache). Only ids are decided here; runners move bytes.

    who holds a reference on a block        each request whose table lists it; the prefix cache, for blocks in it
    free                                    nobody
    cached                                  the prefix cache alone, and no request relies on it: can be evicted
    used                                    the rest
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from lab.errors import BlockError, NeverFits
from lab.memory.blocks import BlockPool, blocks_for
from lab.memory.content import block_contents
from lab.memory.prefix import PrefixCache
from lab.memory.protocol import BlockCounts
from lab.numbers import whole
from lab.plan import BlockCopy
from lab.request import Request


class PagedMemory:
    """Implements Memory over `num_blocks` device blocks and `num_host_blocks` host blocks."""

    name = "paged"
    grows = True

    def __init__(
        self, num_blocks: int, block_size: int = 16, cache: PrefixCache | None = None, num_host_blocks: int = 0
    ):
        self.pool = BlockPool(num_blocks)
        self.host = BlockPool(num_host_blocks) if whole(num_host_blocks, "a number of host blocks of", 0) else None
        self.cache = cache
        self.num_blocks, self.block_size = num_blocks, whole(block_size, "a block size of")
        self._copies: list[BlockCopy] = []
        self._shown: dict[int, int] = {}  # request -> full blocks already offered to the cache
        self._matches: dict[int, tuple[int, list[int]]] = {}  # request -> cache version, match

    @property
    def steady(self) -> bool:
        """Whoever finds no room now finds none while others only grow; a cache may come to hold his beginning."""
        return self.cache is None

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` tokens occupy."""
        return blocks_for(num_tokens, self.block_size)

    def check_fits(self, request: Request) -> None:
        """Raise NeverFits when even an empty pool is too small for prompt + max_tokens."""
        needs = self.blocks_for(request.max_total)
        if needs > self.num_blocks:
            raise NeverFits(request.id, needs, self.num_blocks)

    # -- admission -----------------------------------------------------------------------------------------
    def match(self, request: Request) -> list[int]:
        """Cached blocks this request could start from: whole blocks, and at least one token stays to compute."""
        if self.cache is None or request.host_table:
            return []
        known = self._matches.get(request.id)
        if known is None or known[0] != self.cache.version:
            limit = (request.num_tokens - 1) // self.block_size
            found = self.cache.match(block_contents(request, self.block_size, limit))
            known = self._matches[request.id] = (self.cache.version, found)
        return known[1]

    def can_admit(self, request: Request, promised: int) -> bool:
        """True when every token known so far fits beside `promised` blocks; its matched blocks are not free too."""
        matched = self.match(request)
        available = self.pool.num_free
        if self.cache is not None:
            available += self.cache.num_evictable - sum(self.cache.evictable(block) for block in matched)
        return self.blocks_for(request.num_tokens) - len(matched) + promised <= available

    def admit(self, request: Request) -> int:
        """Start from what is resident: cached blocks are shared, swapped ones come back from the host."""
        if request.host_table:
            self._swap_in(request)
            return 0
        matched = self.match(request)
        self._matches.pop(request.id, None)
        for block in matched:
            self.pool.share(block)
        request.block_table = list(matched)
        request.num_computed = len(matched) * self.block_size
        if self.cache is not None and matched:
            self.cache.hold(request.id, request.contents[: len(matched)])
        self._shown[request.id] = len(matched)
        return request.num_computed

    # -- growth --------------------------------------------------------------------------------------------
    def _has_room(self, request: Request, num_tokens: int) -> bool:
        """Whether `num_tokens` tokens fit into the table as it is: what nearly every decode step finds."""
        table = request.block_table
        if not request.num_computed < num_tokens <= len(table) * self.block_size:
            return False
        return self.pool.references[table[request.num_computed // self.block_size]] == 1

    def _missing(self, request: Request, num_tokens: int) -> int:
        """Blocks to allocate: those the table lacks, and one where the next write would hit a shared block."""
        lacking = blocks_for(num_tokens, self.block_size) - len(request.block_table)
        return max(0, lacking) + self._writes_shared(request)

    def _writes_shared(self, request: Request) -> bool:
        """The next token goes to a block of the table that others hold too."""
        table, place = request.block_table, request.num_computed // self.block_size
        return place < len(table) and self.pool.references[table[place]] > 1

    def can_grow(self, request: Request, num_tokens: int) -> bool:
        """A request whose last block still has room needs no free block at all."""
        return (
            self._has_room(request, num_tokens)
            or self._missing(request, num_tokens) <= self.pool.num_free + self._num_evictable
        )

    @property
    def _num_evictable(self) -> int:
        return 0 if self.cache is None else self.cache.num_evictable

    def grow(self, request: Request, num_tokens: int) -> None:
        """Extend the table to `blocks_for(num_tokens)` blocks, evicting cached ones where needed."""
        if self._has_room(request, num_tokens):
            return
        fresh = self._allocate(self._missing(request, num_tokens))
        if self._writes_shared(request):
            place = request.num_computed // self.block_size
            old, new = request.block_table[place], fresh.pop(0)
            self._copies.append(BlockCopy("copy", old, new))
            self.pool.release(old)
            request.block_table[place] = new
        request.block_table += fresh

    def _allocate(self, count: int) -> list[int]:
        short = count - self.pool.num_free
        if short > 0 and self.cache is not None:
            for block in self.cache.evict(short):
                self.pool.release(block)
        return self.pool.allocate(count)

    def committed(self, request: Request) -> None:
        """Offer newly filled blocks to the prefix cache, and use its copy where it had the same content already."""
        if self.cache is None:
            return
        full = request.num_computed // self.block_size
        shown = self._shown.get(request.id, 0)
        if full <= shown:
            return
        self._shown[request.id] = full
        contents = block_contents(request, self.block_size, full)
        path, taken = self.cache.insert(request.id, contents, request.block_table[: len(contents)])
        for block in taken:
            self.pool.share(block)
        for place, block in enumerate(path[shown:], shown):
            if request.block_table[place] != block:
                self.pool.share(block)
                self.pool.release(request.block_table[place])
                request.block_table[place] = block

    # -- leaving -------------------------------------------------------------------------------------------
    def release(self, request: Request) -> None:
        """Give back the table from its tail, so that a request's first blocks are reused last."""
        if self.cache is not None:
            self.cache.drop(request.id)
        self._shown.pop(request.id, None)
        self._matches.pop(request.id, None)
        request.contents.clear()  # a long trace would keep millions of them
        while request.block_table:
            self.pool.release(request.block_table.pop())
        while request.host_table:
            self.host.release(request.host_table.pop())

    def swap_out(self, request: Request) -> bool:
        """Copy every block to the host and free it here; computed tokens stay computed."""
        count = len(request.block_table)
        if self.host is None or self.host.num_free < count:
            return False
        host = self.host.allocate(count)
        self._copies += [BlockCopy("out", *pair) for pair in zip(request.block_table, host, strict=True)]
        self.release(request)
        request.host_table = host
        return True

    def _swap_in(self, request: Request) -> None:
        request.block_table = self._allocate(len(request.host_table))
        self._copies += [BlockCopy("in", *pair) for pair in zip(request.host_table, request.block_table, strict=True)]
        while request.host_table:
            self.host.release(request.host_table.pop())

    def fork(self, parent: Request, child: Request) -> None:
        """Share all blocks with prompt tokens; the child computes the last prompt token itself, to sample from it."""
        tokens = parent.num_prompt - 1
        if self.cache is not None and parent.num_prompt % self.block_size == 0:
            # The last block is full and so in the cache, whose blocks nobody may write: computed again, as on any hit.
            tokens = parent.num_prompt - self.block_size
        for block in parent.block_table[: self.blocks_for(tokens)]:
            self.pool.share(block)
            child.block_table.append(block)
        child.num_computed = tokens
        if self.cache is not None:
            contents = block_contents(child, self.block_size, tokens // self.block_size)
            found = len(self.cache.match(contents))
            self.cache.hold(child.id, contents[:found])
            self._shown[child.id] = len(contents)

    def take_copies(self) -> list[BlockCopy]:
        """Hand over the copies in the order in which they were decided."""
        copies, self._copies = self._copies, []
        return copies

    # -- books ---------------------------------------------------------------------------------------------
    def counts(self) -> BlockCounts:
        """Free, used and evictable cached blocks."""
        free, cached = self.pool.num_free, self._num_evictable
        return BlockCounts(free, self.num_blocks - free - cached, cached)

    def check(self, live: Iterable[Request]) -> None:
        """Every reference has a holder, every table is long enough for its tokens, nobody writes a shared slot."""
        held: Counter[int] = Counter()
        hosted: Counter[int] = Counter()
        for request in live:
            held.update(request.block_table)
            hosted.update(request.host_table)
            table = request.host_table or request.block_table
            if len(table) < self.blocks_for(request.num_computed):
                raise BlockError(
                    f"request {request.id} has {request.num_computed} tokens computed in "
                    f"{len(table)} blocks of {self.block_size}"
                )
            if len(set(table)) != len(table):
                raise BlockError(f"the table of request {request.id} lists a block twice: {table}")
        if self.cache is not None:
            held.update(self.cache.check(lambda block: self.pool.references[block]))
        self.pool.check(held)
        if self.host is not None:
            self.host.check(hosted)
