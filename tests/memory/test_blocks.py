from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from lab.errors import BadPolicy, BlockError, OutOfBlocks
from lab.memory.blocks import BlockPool, blocks_for
from lab.memory.paged import PagedMemory


@pytest.mark.parametrize("count", [0, -1, -100])
def test_pool_and_block_size_must_be_positive(count: int) -> None:
    with pytest.raises(BadPolicy, match=str(count)):
        BlockPool(count)
    with pytest.raises(BadPolicy, match=str(count)):
        PagedMemory(count, 16)
    with pytest.raises(BadPolicy, match=str(count)):
        PagedMemory(8, count)


@pytest.mark.parametrize("value", [2.5, math.nan, math.inf, "8", True])
def test_pool_and_block_size_must_be_whole_numbers(value: object) -> None:
    with pytest.raises(BadPolicy, match=str(value)):
        PagedMemory(value, 16)
    with pytest.raises(BadPolicy, match=str(value)):
        PagedMemory(8, value)


def test_a_short_pool_gives_nothing_and_names_both_numbers() -> None:
    pool = BlockPool(3)
    pool.allocate(1)
    with pytest.raises(OutOfBlocks) as caught:
        pool.allocate(3)
    assert (caught.value.needs, caught.value.free) == (3, 2)
    assert "3" in str(caught.value) and "2" in str(caught.value)
    assert pool.num_free == 2  # all or nothing
    pool.check(Counter({0: 1}))


def test_the_block_freed_last_is_used_next() -> None:
    pool = BlockPool(4)
    assert pool.allocate(3) == [0, 1, 2]
    pool.release(2)
    pool.release(0)
    assert pool.allocate(2) == [0, 2]


def test_a_shared_block_is_free_only_after_its_last_holder() -> None:
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    pool.share(block)
    pool.check(Counter({block: 2}))
    assert pool.release(block) is False and pool.num_free == 1
    assert pool.release(block) is True and pool.num_free == 2


def test_a_free_block_can_neither_be_freed_nor_shared() -> None:
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    pool.release(block)
    with pytest.raises(BlockError, match=f"block {block} is freed twice"):
        pool.release(block)
    with pytest.raises(BlockError, match=f"block {block} is free"):
        pool.share(block)
    pool.check(Counter())


def test_check_sees_every_kind_of_broken_books() -> None:
    for break_it in (
        lambda pool: pool.references.__setitem__(0, 2),  # a holder too many in the books
        lambda pool: pool.references.__setitem__(0, 0),  # the holder forgotten
        lambda pool: pool._free.append(0),  # free and referenced
        lambda pool: pool._free.append(pool._free[-1]),  # free twice
        lambda pool: pool._free.pop(),  # neither free nor referenced: a leak
    ):
        pool = BlockPool(4)
        pool.allocate(1)
        pool.check(Counter({0: 1}))
        break_it(pool)
        with pytest.raises(BlockError):
            pool.check(Counter({0: 1}))


def test_pool_against_a_dictionary() -> None:
    draw = random.Random(7)
    pool, held = BlockPool(13), Counter()
    for _ in range(3000):
        move = draw.random()
        if move < 0.45:
            count = draw.randint(0, 5)
            if count > 13 - len(held):
                with pytest.raises(OutOfBlocks):
                    pool.allocate(count)
            else:
                taken = pool.allocate(count)
                assert len(taken) == count and not set(taken) & set(held)
                held.update(taken)
        elif held and move < 0.6:
            block = draw.choice(sorted(held))
            pool.share(block)
            held[block] += 1
        elif held:
            block = draw.choice(sorted(held))
            held[block] -= 1
            assert pool.release(block) == (held[block] == 0)
            held += Counter()  # drops zeros
        assert pool.num_free == 13 - len(held)
        pool.check(held)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 16])
def test_blocks_for_is_the_ceiling(size: int) -> None:
    for count in (0, 1, size - 1, size, size + 1, 2 * size - 1, 2 * size, 2 * size + 1):
        assert blocks_for(count, size) == math.ceil(count / size)
