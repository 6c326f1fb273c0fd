"""What came before paging: each request reserves one contiguous region for its whole life at admission.

    max      the longest context the engine allows, whatever the request needs
    pow2     prompt + the next power of two of its output length
    oracle   exactly what it will need (only a simulation can know)

The three variants of Orca in the PagedAttention paper (SOSP'23, section 6.1), which found 20.4 % to 38.2 % of such
memory holding tokens. `Report.kv_waste` counts the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from lab.errors import BadPolicy, BlockError, NeverFits, OutOfBlocks
from lab.memory.blocks import blocks_for
from lab.memory.protocol import BlockCounts
from lab.numbers import whole
from lab.plan import BlockCopy
from lab.request import Request

KINDS = ("max", "pow2", "oracle")


class ReservedMemory:
    """Implements Memory by first fit over `num_blocks` blocks; a table is a run of neighbouring ids."""

    name = "reserved"
    grows = False
    steady = True  # whoever finds no hole now finds none until somebody leaves

    def __init__(self, num_blocks: int, block_size: int = 16, kind: str = "max", max_context: int = 2048):
        if kind not in KINDS:
            raise BadPolicy(f"reserved memory {kind!r} is not known; there are {', '.join(KINDS)}")
        self.num_blocks = whole(num_blocks, "a number of blocks of")
        self.block_size = whole(block_size, "a block size of")
        self.kind, self.max_context = kind, whole(max_context, "a longest context of")
        self._holes: list[tuple[int, int]] = [(0, num_blocks)]  # (first block, length), by first block

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` tokens occupy."""
        return blocks_for(num_tokens, self.block_size)

    def reserve(self, request: Request) -> int:
        """Blocks the request reserves."""
        output = request.sampling.max_tokens
        tokens = {
            "max": self.max_context,
            "pow2": request.num_prompt + (1 << (output - 1).bit_length()),
            "oracle": request.num_prompt + output,
        }[self.kind]
        return self.blocks_for(tokens)

    def check_fits(self, request: Request) -> None:
        """Raise NeverFits when the reservation exceeds the pool, or the context the reservation."""
        if request.sampling.n > 1:
            raise BadPolicy(
                f"request {request.id} wants {request.sampling.n} samples that share blocks: use paged memory"
            )
        if request.max_total + 1 > self.max_context and self.kind == "max":
            raise NeverFits(request.id, request.max_total + 1, self.max_context, "tokens of reserved context")
        if self.reserve(request) > self.num_blocks:
            raise NeverFits(request.id, self.reserve(request), self.num_blocks)

    def _hole(self, length: int) -> int | None:
        return next((place for place, (_, size) in enumerate(self._holes) if size >= length), None)

    def match(self, request: Request) -> list[int]:
        """Nothing is shared."""
        return []

    def can_admit(self, request: Request, promised: int) -> bool:
        """True when one hole is long enough: free blocks in several holes do not help (external fragmentation)."""
        return self._hole(self.reserve(request)) is not None

    def admit(self, request: Request) -> int:
        """Take the first hole that is long enough."""
        length = self.reserve(request)
        place = self._hole(length)
        if place is None:
            raise OutOfBlocks(length, max((size for _, size in self._holes), default=0))
        first, size = self._holes[place]
        self._holes[place : place + 1] = [(first + length, size - length)] if size > length else []
        request.block_table = list(range(first, first + length))
        request.num_computed = 0
        return 0

    def can_grow(self, request: Request, num_tokens: int) -> bool:
        """The whole need was reserved at admission."""
        return self.blocks_for(num_tokens) <= len(request.block_table)

    def grow(self, request: Request, num_tokens: int) -> None:
        """Nothing to do within the reservation."""
        if not self.can_grow(request, num_tokens):
            raise OutOfBlocks(self.blocks_for(num_tokens), len(request.block_table))

    def committed(self, request: Request) -> None:
        """No cache to tell."""

    def swap_out(self, request: Request) -> bool:
        """Reserved regions stay where they are."""
        return False

    def fork(self, parent: Request, child: Request) -> None:
        """Contiguous regions cannot be shared: every sample would need its own copy of the prompt."""
        raise BadPolicy("parallel samples share blocks, and reserved memory has none to share: use paged memory")

    def take_copies(self) -> list[BlockCopy]:
        """Nothing is ever copied."""
        return []

    def release(self, request: Request) -> None:
        """Give the region back and join it with the holes beside it."""
        if not request.block_table:
            return
        first, length = request.block_table[0], len(request.block_table)
        request.block_table = []
        merged: list[tuple[int, int]] = []
        for start, size in sorted([*self._holes, (first, length)]):
            if merged and sum(merged[-1]) > start:
                raise BlockError(f"block {start} is freed twice")
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + size)
            else:
                merged.append((start, size))
        self._holes = merged

    def counts(self) -> BlockCounts:
        """Free and reserved blocks."""
        free = sum(size for _, size in self._holes)
        return BlockCounts(free, self.num_blocks - free, 0)

    def check(self, live: Iterable[Request]) -> None:
        """Every block is in exactly one hole or one table."""
        owners = Counter(block for first, size in self._holes for block in range(first, first + size))
        for request in live:
            owners.update(request.block_table)
        wrong = [block for block in range(self.num_blocks) if owners[block] != 1]
        if wrong:
            raise BlockError(f"block {wrong[0]} has {owners[wrong[0]]} owners")
