"""How much of a workload a prefix cache could serve if it never had to forget: the cache alone, without an engine."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from lab.errors import BadWorkload
from lab.memory.blocks import blocks_for
from lab.memory.content import block_contents
from lab.memory.prefix import PrefixCache
from lab.request import Request
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


def hit_rate(work: Workload, cache: PrefixCache, block_size: int | None = None) -> HitRate:
    """Serve the prompts one after the other, each inserted whole before the next; nothing is evicted.

    Without a block size every block key counts as one block, that of a partly filled last block too: so do
    published hit rates. With one, this is what an engine of that block size finds at best: it shares only full
    blocks and computes at least one token of every prompt. A spec without block keys shares nothing. Give an empty
    cache; it holds the whole workload afterwards. Raises BadWorkload for prompts with text.
    """
    fresh = count()
    blocks = hit_blocks = tokens = hit_tokens = 0
    for owner, spec in sorted(enumerate(work.specs), key=lambda entry: (entry[1].arrival, entry[0])):
        if not isinstance(spec.prompt, int):
            raise BadWorkload("hit_rate counts lengths and block keys, and a prompt with text has neither")
        size = block_size or spec.key_size
        if block_size is None:
            contents = [(key, 0) for key in spec.block_keys]
            findable = len(contents)
        else:
            request = Request(owner, None, num_prompt=spec.prompt, block_keys=spec.block_keys, key_size=spec.key_size)
            contents = block_contents(request, size, spec.prompt // size)
            findable = (spec.prompt - 1) // size
        found = len(cache.match(contents[:findable]))
        cache.insert(owner, contents, [next(fresh) for _ in contents])
        cache.drop(owner)
        blocks += blocks_for(spec.prompt, size)
        hit_blocks += found
        tokens += spec.prompt
        hit_tokens += min(found * size, spec.prompt)
    return HitRate(blocks, hit_blocks, tokens, hit_tokens)
