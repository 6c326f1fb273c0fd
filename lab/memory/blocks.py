"""The block pool: which blocks are free, and how many owners hold each of the others."""

from __future__ import annotations

from collections import Counter

from lab.errors import BlockError, OutOfBlocks
from lab.numbers import whole


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Blocks that `num_tokens` tokens occupy; the last one may be partly filled."""
    return -(-num_tokens // block_size)


class BlockPool:
    """`num_blocks` blocks, each free or referenced `references[id]` times. Every operation is O(blocks touched)."""

    def __init__(self, num_blocks: int):
        self.num_blocks = whole(num_blocks, "a number of blocks of")
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
