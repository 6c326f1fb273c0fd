from __future__ import annotations

import pytest

from lab.errors import BlockError, NeverFits
from lab.memory.paged import PagedMemory
from lab.request import Request, SamplingParams


def test_growing_takes_only_what_is_missing() -> None:
    memory, request = PagedMemory(4, 4), Request(0, [1] * 4)
    memory.grow(request, 3)
    assert request.block_table == [0]
    memory.grow(request, 4)
    assert request.block_table == [0]
    memory.grow(request, 5)
    assert request.block_table == [0, 1]
    memory.grow(request, 2)  # never shrinks
    assert request.block_table == [0, 1]


def test_a_last_block_with_room_can_grow_without_a_free_block() -> None:
    memory, request = PagedMemory(1, 4), Request(0, [1, 2])
    memory.grow(request, 2)
    assert memory.counts() == (0, 1, 0)
    assert memory.can_grow(request, 4) and not memory.can_grow(request, 5)


def test_admission_counts_what_is_promised_to_others() -> None:
    memory, request = PagedMemory(4, 4), Request(0, [1] * 8)
    assert memory.can_admit(request, 2) and not memory.can_admit(request, 3)


def test_fits_exactly_or_never() -> None:
    memory = PagedMemory(2, 4)
    memory.check_fits(Request(0, [1] * 5, SamplingParams(max_tokens=4)))  # computes 5 + 4 - 1 = 8 tokens
    with pytest.raises(NeverFits, match="request 9 needs 3 blocks, the most this engine can give is 2"):
        memory.check_fits(Request(9, [1] * 5, SamplingParams(max_tokens=5)))


def test_release_empties_the_table_and_reuses_the_tail_first() -> None:
    memory, request = PagedMemory(3, 4), Request(0, [1] * 12)
    memory.grow(request, 12)
    memory.release(request)
    assert request.block_table == [] and memory.counts() == (3, 0, 0)
    memory.release(request)  # nothing left to give back
    assert memory.pool.allocate(3) == [0, 1, 2]


def test_check_wants_a_table_for_every_computed_token() -> None:
    memory, request = PagedMemory(3, 4), Request(0, [1] * 8)
    memory.grow(request, 8)
    request.num_computed = 8
    memory.check([request])
    request.num_computed = 9
    with pytest.raises(BlockError, match="request 0 has 9 tokens computed in 2 blocks of 4"):
        memory.check([request])
    request.num_computed = 8
    with pytest.raises(BlockError, match="has 1 references, its holders number 0"):
        memory.check([])  # somebody holds blocks and is no longer known
    with pytest.raises(BlockError, match="has 1 references, its holders number 2"):
        memory.check([request, request])
