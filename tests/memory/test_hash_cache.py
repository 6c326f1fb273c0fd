"""Chained block hashes: what a key must contain, what a hit must check, what is evicted when."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lab.errors import BlockError
from lab.memory.hash_cache import ROOT, HashCache, chain


def run(text: str) -> list[tuple]:
    """Block contents, one per letter."""
    return [(letter,) for letter in text]


def test_pitfall_17_the_same_block_after_another_prefix_misses() -> None:
    cache = HashCache()
    cache.insert(1, run("ab"), [0, 1])
    assert cache.match(run("ab")) == [0, 1]
    assert cache.match(run("xb")) == []
    assert cache.match(run("b")) == []


def test_pitfall_17_a_forced_collision_is_caught_by_comparing_tokens() -> None:
    cache = HashCache(hash_block=lambda key, content: b"always the same")
    cache.insert(1, run("abc"), [0, 1, 2])
    assert cache.match(run("a")) == [0]
    assert cache.match(run("x")) == []
    assert cache.match(run("aa")) == [0], "the second block has the first one's key and content, but not its place"
    assert cache.insert(2, run("xy"), [5, 6]).path == [], "nothing is entered under a taken key"


def test_pitfall_18_keys_are_the_same_in_every_process() -> None:
    code = "from lab.memory.hash_cache import ROOT, chain; print(chain(chain(ROOT, (1, 2)), ('k', 3)).hex())"
    keys = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert keys == {chain(chain(ROOT, (1, 2)), ("k", 3)).hex().encode() + b"\n"}


def test_pitfall_8_an_evicted_key_misses() -> None:
    cache = HashCache()
    cache.insert(1, run("ab"), [0, 1])
    cache.drop(1)
    assert cache.evict(1) == [1]
    assert cache.match(run("ab")) == [0]
    cache.insert(2, run("c"), [1])
    assert cache.match(run("ab")) == [0]


def test_eviction_is_least_recently_used_and_tail_first() -> None:
    cache = HashCache()
    cache.insert(1, run("ab"), [0, 1])
    cache.insert(2, run("cd"), [2, 3])
    cache.drop(2)
    cache.drop(1)
    cache.hold(3, run("c"))
    cache.drop(3)
    assert cache.evict(9) == [3, 1, 0, 2]


def test_blocks_in_use_are_not_evicted() -> None:
    cache = HashCache()
    cache.insert(1, run("abc"), [0, 1, 2])
    cache.hold(2, run("ab"))
    cache.drop(1)
    assert cache.num_evictable == 1 and cache.evict(9) == [2]
    assert sorted(cache.check(lambda block: 1)) == [0, 1]


def test_the_first_of_two_equal_blocks_stands_for_both() -> None:
    cache = HashCache()
    cache.insert(1, run("ab"), [0, 1])
    assert cache.insert(2, run("abc"), [5, 6, 7]) == ([0, 1, 7], [7])


def test_the_check_notices_a_freed_block_and_a_lost_user() -> None:
    cache = HashCache()
    cache.insert(1, run("a"), [0])
    with pytest.raises(BlockError, match="block 0 is cached and free"):
        cache.check(lambda block: 0)
    cache._paths.clear()
    with pytest.raises(BlockError, match="1 users, 0 rely"):
        cache.check(lambda block: 1)
