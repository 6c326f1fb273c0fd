"""How much of a workload a prefix cache could serve if it never had to forget: the cache alone, without an engine."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from lab.errors import BadWorkload
from lab.memory.prefix import PrefixCache
from lab.workload import Workload


@dataclass(frozen=True, slots=True)
class HitRate:
    """Sums over all prompts; the last block of a prompt may be partly filled and counts as one block."""

    blocks: int
    hit_blocks: int
    tokens: int
    hit_tokens: int

    @property
    def of_blocks(self) -> float:
        """Share of blocks found."""
        return self.hit_blocks / self.blocks

    @property
    def of_tokens(self) -> float:
        """Share of prompt tokens found."""
        return self.hit_tokens / self.tokens


def hit_rate(work: Workload, cache: PrefixCache, whole_blocks: bool = False) -> HitRate:
    """Serve the requests one after the other, each inserted whole before the next; nothing is evicted.

    Every block key counts, that of a partly filled last block too, as published hit rates count. An engine
    shares only full blocks and computes at least one token of every prompt: `whole_blocks` counts that way.
    A spec without block keys shares nothing. `cache` must be empty, and is full of the workload afterwards.
    """
    fresh = count()
    blocks = hit_blocks = tokens = hit_tokens = 0
    for owner, spec in sorted(enumerate(work.specs), key=lambda entry: (entry[1].arrival, entry[0])):
        if not isinstance(spec.prompt, int):
            raise BadWorkload("hit_rate counts lengths and block keys, and a prompt with text has neither")
        size = spec.key_size
        usable = (spec.prompt - 1) // size if whole_blocks else len(spec.block_keys)
        contents = [(key, 0) for key in spec.block_keys]
        found = len(cache.match(contents[:usable]))
        insertable = contents[: spec.prompt // size] if whole_blocks else contents
        cache.insert(owner, insertable, [next(fresh) for _ in insertable])
        cache.drop(owner)
        blocks += -(-spec.prompt // size)
        hit_blocks += found
        tokens += spec.prompt
        hit_tokens += min(found * size, spec.prompt)
    return HitRate(blocks, hit_blocks, tokens, hit_tokens)
