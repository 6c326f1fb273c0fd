"""How long does a prefix match take? A 4,096-token prompt against a cache of 10,000 prompts; a table, no assertion.

    python tests/benchmarks/prefix_match.py [--block-size 16]

The prompts form a tree: a common system prompt, a hundred conversations, a hundred variants of each. Times are the
best median of five rounds: the match alone (contents known, as for a request that waits), and with the contents made
from token ids, as when it is looked at for the first time. Then allocation and freeing per block touched.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lab.memory.blocks import BlockPool  # noqa: E402
from lab.memory.content import block_contents  # noqa: E402
from lab.memory.hash_cache import HashCache  # noqa: E402
from lab.memory.radix_cache import RadixCache  # noqa: E402
from lab.request import Request  # noqa: E402

TOKENS, CONVERSATIONS, VARIANTS = 4096, 100, 100


def best_median(call: Callable[[], object], rounds: int = 5, repeat: int = 50) -> float:
    """Microseconds of one call: the smallest of `rounds` medians."""
    medians = []
    for _ in range(rounds):
        times = []
        for _ in range(repeat):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        medians.append(statistics.median(times))
    return 1e6 * min(medians)


def prompts(draw: random.Random) -> list[list[int]]:
    """10,000 prompts of 4,096 tokens: 512 shared by all, 2,048 by a conversation, the rest each its own."""
    system = [draw.randrange(50_000) for _ in range(512)]
    found = []
    for _ in range(CONVERSATIONS):
        conversation = system + [draw.randrange(50_000) for _ in range(1536)]
        for _ in range(VARIANTS):
            start = draw.randrange(50_000)
            found.append(conversation + [(start + place * 7919) % 50_000 for place in range(TOKENS - 2048)])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--block-size", type=int, default=16)
    size = parser.parse_args().block_size
    asked = prompts(random.Random(0))
    print(f"{len(asked):,} prompts of {TOKENS:,} tokens, blocks of {size}; microseconds")
    print(f"{'cache':8}{'match':>10}{'with contents':>16}{'insert':>10}")
    for cache in (RadixCache(), HashCache()):
        fresh = iter(range(10**9))
        inserted = []
        for owner, tokens in enumerate(asked):
            contents = block_contents(Request(owner, tokens), size, TOKENS // size)
            blocks = cache.match(contents)
            blocks += [next(fresh) for _ in range(len(contents) - len(blocks))]
            began = time.perf_counter()
            cache.insert(owner, contents, blocks)
            inserted.append(time.perf_counter() - began)
            cache.drop(owner)
        tokens = asked[len(asked) // 2]
        known = block_contents(Request(0, tokens), size, TOKENS // size)
        assert len(cache.match(known)) == TOKENS // size
        match = best_median(lambda: cache.match(known))  # noqa: B023
        both = best_median(lambda: cache.match(block_contents(Request(0, tokens), size, TOKENS // size)))  # noqa: B023
        print(f"{cache.name:8}{match:10.0f}{both:16.0f}{1e6 * statistics.median(inserted):10.0f}", flush=True)
    for blocks in (10, 1000, 100_000):
        pool = BlockPool(200_000)

        def turn() -> None:
            for block in pool.allocate(blocks):  # noqa: B023
                pool.release(block)  # noqa: B023

        print(
            f"allocate and free {blocks:>7,} blocks: {best_median(turn, repeat=9) / blocks:.3f} µs per block",
            flush=True,
        )


if __name__ == "__main__":
    main()
