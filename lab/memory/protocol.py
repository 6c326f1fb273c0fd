"""What the scheduler may ask of a memory: block ids and counts, never tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from lab.plan import BlockCopy
from lab.request import Request


class BlockCounts(NamedTuple):
    """Where the pool's blocks are now; free + used + cached is always the pool's size.

    `used` blocks are held by at least one request, `cached` ones only by a prefix cache (they can be evicted).
    """

    free: int
    used: int
    cached: int


class Memory(Protocol):
    """Decides which blocks hold which request's keys and values."""

    num_blocks: int
    block_size: int
    steady: bool  # a request that cannot be admitted now cannot be until somebody leaves
    grows: bool  # a running request takes blocks as it needs them; false: all were taken at admission

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` tokens occupy."""
        ...

    def check_fits(self, request: Request) -> None:
        """Raise NeverFits when `request` could not even run alone."""
        ...

    def match(self, request: Request) -> list[int]:
        """Cached blocks a waiting request could start from (none without a prefix cache)."""
        ...

    def can_admit(self, request: Request, promised: int) -> bool:
        """True when all remaining tokens of a waiting request fit beside `promised` blocks owed to others."""
        ...

    def admit(self, request: Request) -> int:
        """Give a waiting request what is already resident; sets block_table and num_computed.

        Returns the tokens taken from a prefix cache (0 without one).
        """
        ...

    def can_grow(self, request: Request, num_tokens: int) -> bool:
        """True when the request's table can be extended to hold `num_tokens` tokens now."""
        ...

    def grow(self, request: Request, num_tokens: int) -> None:
        """Extend the request's table to hold `num_tokens` tokens. Raises OutOfBlocks."""
        ...

    def committed(self, request: Request) -> None:
        """Tokens up to num_computed are now in the blocks; a prefix cache may show them to others."""
        ...

    def swap_out(self, request: Request) -> bool:
        """Move the request's blocks to host memory and free them; False (and nothing done) without room there."""
        ...

    def fork(self, parent: Request, child: Request) -> None:
        """Let `child` share the blocks of all but the last of `parent`'s prompt tokens, copy-on-write."""
        ...

    def take_copies(self) -> list[BlockCopy]:
        """Copies decided since the last call; the next plan must carry them out before it computes."""
        ...

    def release(self, request: Request) -> None:
        """Take back every block of the request. Raises BlockError on a second release of the same block."""
        ...

    def counts(self) -> BlockCounts:
        """Blocks by owner, in O(1)."""
        ...

    def check(self, live: Iterable[Request]) -> None:
        """Recount everything against the tables of all `live` requests. Raises BlockError on any difference."""
        ...
