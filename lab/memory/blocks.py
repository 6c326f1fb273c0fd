"""The block pool and the paged memory over it: block ids, reference counts, exact books.

A request's keys and values live in fixed-size blocks that need not be neighbours; its block table lists them in
order (PagedAttention, SOSP'23). Only ids are decided here; the runner moves the bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from lab.errors import BadPolicy, BlockError, NeverFits, OutOfBlocks
from lab.memory.protocol import BlockCounts
from lab.request import Request


class BlockPool:
    """`num_blocks` blocks, each free or referenced `references[id]` times. Every operation is O(blocks touched)."""

    def __init__(self, num_blocks: int):
        if num_blocks < 1:
            raise BadPolicy(f"a pool of {num_blocks} blocks; it needs at least 1")
        self.num_blocks = num_blocks
        self.references = [0] * num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))  # a stack: the block freed last is used next

    @property
    def num_free(self) -> int:
        """Blocks nobody references."""
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Take `count` free blocks, each with one reference. Raises OutOfBlocks and takes none if they are short."""
        if count > len(self._free):
            raise OutOfBlocks(count, len(self._free))
        taken = [self._free.pop() for _ in range(count)]
        for block in taken:
            self.references[block] = 1
        return taken

    def share(self, block: int) -> None:
        """Add a reference to a block that is in use."""
        if self.references[block] < 1:
            raise BlockError(f"block {block} is free and cannot be shared")
        self.references[block] += 1

    def release(self, block: int) -> bool:
        """Drop one reference; True when that made the block free."""
        if self.references[block] < 1:
            raise BlockError(f"block {block} is freed twice")
        self.references[block] -= 1
        if self.references[block]:
            return False
        self._free.append(block)
        return True

    def check(self, held: Counter[int]) -> None:
        """`held[id]` is how many owners claim each block; raise BlockError where the books say otherwise."""
        free = set(self._free)
        if len(free) != len(self._free):
            raise BlockError("a block is on the free list twice")
        for block, count in enumerate(self.references):
            if count != held[block]:
                raise BlockError(f"block {block} has {count} references, its holders number {held[block]}")
            if (count == 0) != (block in free):
                raise BlockError(f"block {block} has {count} references and is {'' if block in free else 'not '}free")


class PagedMemory:
    """Paged keys and values without a prefix cache."""

    name = "paged"

    def __init__(self, num_blocks: int, block_size: int = 16):
        if block_size < 1:
            raise BadPolicy(f"a block size of {block_size} tokens; it must be at least 1")
        self.pool = BlockPool(num_blocks)
        self.num_blocks, self.block_size = num_blocks, block_size

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` tokens occupy: the last one may be partly filled."""
        return -(-num_tokens // self.block_size)

    def check_fits(self, request: Request) -> None:
        """Raise NeverFits when even an empty pool is too small for prompt + max_tokens."""
        needs = self.blocks_for(request.max_total)
        if needs > self.num_blocks:
            raise NeverFits(request.id, needs, self.num_blocks)

    def can_admit(self, request: Request, promised: int) -> bool:
        """True when every token known so far fits in blocks that are free and not `promised` to others."""
        return self.blocks_for(request.num_tokens) + promised <= self.pool.num_free

    def admit(self, request: Request) -> int:
        """Nothing is resident without a prefix cache: the request starts from its first token."""
        request.num_computed = 0
        return 0

    def can_grow(self, request: Request, num_tokens: int) -> bool:
        """A request whose last block still has room needs no free block at all."""
        return self.blocks_for(num_tokens) - len(request.block_table) <= self.pool.num_free

    def grow(self, request: Request, num_tokens: int) -> None:
        """Extend the table to `blocks_for(num_tokens)` blocks."""
        missing = self.blocks_for(num_tokens) - len(request.block_table)
        if missing > 0:
            request.block_table.extend(self.pool.allocate(missing))

    def committed(self, request: Request) -> None:
        """No cache to tell."""

    def release(self, request: Request) -> None:
        """Free the table from its tail, so that a request's first blocks are reused last."""
        while request.block_table:
            self.pool.release(request.block_table.pop())

    def counts(self) -> BlockCounts:
        """Free and used blocks; nothing is cached."""
        free = self.pool.num_free
        return BlockCounts(free, self.num_blocks - free, 0)

    def check(self, live: Iterable[Request]) -> None:
        """Every reference has a holder, every table is exactly as long as its tokens need."""
        held: Counter[int] = Counter()
        for request in live:
            held.update(request.block_table)
            if len(request.block_table) < self.blocks_for(request.num_computed):
                raise BlockError(
                    f"request {request.id} has {request.num_computed} tokens computed in "
                    f"{len(request.block_table)} blocks of {self.block_size}"
                )
        self.pool.check(held)
