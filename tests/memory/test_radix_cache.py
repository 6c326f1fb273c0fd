"""The radix tree against a dictionary of prefixes, and its rules one by one."""

from __future__ import annotations

import random

import pytest

from lab.errors import BlockError
from lab.memory.radix_cache import RadixCache


def run(text: str) -> list[tuple]:
    """Block contents, one per letter."""
    return [(letter,) for letter in text]


class DictOracle:
    """Every cached prefix in one dictionary: block, last use. Slow, obvious, and exact about eviction order."""

    def __init__(self) -> None:
        self.block: dict[tuple, int] = {}
        self.used: dict[tuple, int] = {}
        self.ends: dict[int, tuple] = {}
        self.time = 0

    def match(self, contents: list[tuple]) -> list[int]:
        found = []
        for length in range(1, len(contents) + 1):
            if tuple(contents[:length]) not in self.block:
                break
            found.append(self.block[tuple(contents[:length])])
        return found

    def touch(self, prefix: tuple) -> None:
        self.time += 1
        for length in range(1, len(prefix) + 1):
            self.used[prefix[:length]] = self.time

    def insert(self, owner: int, contents: list[tuple], blocks: list[int]) -> list[int]:
        taken = []
        for place in range(len(contents)):
            prefix = tuple(contents[: place + 1])
            if prefix not in self.block:
                self.block[prefix] = blocks[place]
                taken.append(blocks[place])
        self.ends[owner] = tuple(contents)
        if taken:
            self.touch(tuple(contents))
        return taken

    def drop(self, owner: int) -> None:
        end = self.ends.pop(owner, None)
        if end is not None:
            self.touch(end)

    def locked(self, prefix: tuple) -> bool:
        return any(end[: len(prefix)] == prefix for end in self.ends.values())

    def evictable(self) -> set[tuple]:
        return {prefix for prefix in self.block if not self.locked(prefix)}

    def evict(self, count: int) -> list[int]:
        gone = []
        while len(gone) < count:
            parents = {prefix[:-1] for prefix in self.block}
            leaves = [prefix for prefix in self.evictable() if prefix not in parents]
            if not leaves:
                break
            oldest = min(leaves, key=lambda prefix: self.used[prefix])
            gone.append(self.block.pop(oldest))
            del self.used[oldest]
        return gone


def one_operation(draw: random.Random, cache: RadixCache, oracle: DictOracle, fresh) -> None:
    contents = [(draw.randrange(3),) for _ in range(draw.randint(1, 7))]
    owner = draw.randrange(6)
    kind = draw.random()
    if kind < 0.35:
        assert cache.match(contents) == oracle.match(contents)
    elif kind < 0.6:
        # An owner grows along its own path, as a request does: what it holds comes first.
        contents = [*oracle.ends.get(owner, ()), *contents][:9]
        blocks = oracle.match(contents)
        blocks += [next(fresh) for _ in range(len(contents) - len(blocks))]
        path, taken = cache.insert(owner, contents, blocks)
        assert taken == oracle.insert(owner, contents, blocks)
        assert path == oracle.match(contents)
    elif kind < 0.7 and owner not in oracle.ends:
        held = contents[: len(oracle.match(contents))]
        if held:
            cache.hold(owner, held)
            oracle.ends[owner] = tuple(held)
    elif kind < 0.9:
        cache.drop(owner)
        oracle.drop(owner)
    else:
        count = draw.randint(1, 6)
        assert cache.evict(count) == oracle.evict(count)
    assert cache.num_blocks == len(oracle.block)


def test_pitfalls_20_and_21_tree_equals_a_dictionary_over_100_000_operations() -> None:
    operations = 0
    for seed in range(25):
        draw, cache, oracle = random.Random(seed), RadixCache(), DictOracle()
        fresh = iter(range(10**9))
        for turn in range(4000):
            one_operation(draw, cache, oracle, fresh)
            operations += 1
            if len(oracle.block) > 40:
                assert cache.evict(15) == oracle.evict(15)
            if turn % 50 == 0:
                assert sorted(cache.check(lambda block: 1)) == sorted(oracle.block.values())
                assert cache.num_evictable == len(oracle.evictable())
                assert {oracle.block[p] for p in oracle.evictable()} == {
                    block for block in oracle.block.values() if cache.evictable(block)
                }
    assert operations == 100_000


def test_pitfall_20_a_split_keeps_the_link_to_the_parent() -> None:
    cache = RadixCache()
    cache.insert(1, run("abcd"), [0, 1, 2, 3])
    assert cache.insert(2, run("abef"), [0, 1, 8, 9]) == ([0, 1, 8, 9], [8, 9])
    assert cache.match(run("abcd")) == [0, 1, 2, 3]
    assert cache.match(run("abef")) == [0, 1, 8, 9]
    assert [len(node.blocks) for node in cache.nodes() if node.parent is cache.root] == [2]


def test_a_match_may_end_inside_an_edge_and_changes_nothing() -> None:
    cache = RadixCache()
    cache.insert(1, run("abcd"), [0, 1, 2, 3])
    assert cache.match(run("abx")) == [0, 1]
    assert len(list(cache.nodes())) == 1


def test_the_first_of_two_equal_prefixes_keeps_its_blocks() -> None:
    cache = RadixCache()
    cache.insert(1, run("abc"), [0, 1, 2])
    assert cache.insert(2, run("abcd"), [5, 6, 7, 8]) == ([0, 1, 2, 8], [8])


def test_pitfall_21_locked_and_inner_nodes_stay() -> None:
    cache = RadixCache()
    cache.insert(1, run("abcd"), [0, 1, 2, 3])
    cache.insert(2, run("abef"), [0, 1, 8, 9])
    assert cache.num_evictable == 0 and cache.evict(10) == []
    cache.drop(1)
    assert cache.num_evictable == 2
    assert cache.evict(1) == [3], "the tail goes first"
    assert cache.evict(10) == [2], "what request 2 uses stays"
    cache.drop(2)
    assert cache.evict(3) == [9, 8, 1], "a leaf before the node it hangs on"


def test_the_least_recently_used_leaf_goes_first() -> None:
    cache = RadixCache()
    for owner, (text, block) in enumerate([("a", 0), ("b", 1), ("c", 2)]):
        cache.insert(owner, run(text), [block])
        cache.drop(owner)
    cache.hold(9, run("a"))
    cache.drop(9)
    assert cache.evict(3) == [1, 2, 0]


def test_an_owner_that_was_locked_when_its_edge_was_split_unlocks_both_halves() -> None:
    cache = RadixCache()
    cache.insert(1, run("abcd"), [0, 1, 2, 3])
    cache.hold(2, run("ab"))
    cache.drop(1)
    assert cache.evict(9) == [3, 2]
    cache.drop(2)
    assert sorted(cache.evict(9)) == [0, 1]
    assert cache.num_blocks == 0 and not list(cache.nodes())


def test_holding_what_is_not_cached_is_an_error() -> None:
    with pytest.raises(BlockError, match="2 cached blocks, 0"):
        RadixCache().hold(1, run("ab"))


def test_the_check_notices_a_broken_counter_and_a_broken_link() -> None:
    cache = RadixCache()
    cache.insert(1, run("ab"), [0, 1])
    cache.num_blocks = 3
    with pytest.raises(BlockError, match="counters say 3"):
        cache.check(lambda block: 1)
    cache.num_blocks = 2
    next(cache.nodes()).locks = 2
    with pytest.raises(BlockError, match="2 locks, not 1"):
        cache.check(lambda block: 1)
