"""What chunks of a prompt cost in attention: query-key pairs per chunk, and keys and values read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.cluster.prefill import triangle


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens [start, start + tokens) of a prompt."""

    start: int
    tokens: int

    @property
    def pairs(self) -> int:
        """Query-key pairs per head and layer: each token looks at itself and at everything before it."""
        return triangle(self.start + self.tokens) - triangle(self.start)

    @property
    def earlier(self) -> int:
        """Pairs with keys of earlier chunks."""
        return self.start * self.tokens


def chunks_of(prompt: int, size: int) -> list[Chunk]:
    """A prompt in chunks of `size` tokens; the last may be shorter."""
    return [Chunk(start, min(size, prompt - start)) for start in range(0, prompt, size)]


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """One chunk size: number of chunks, all pairs, share of the costliest chunk, and of the last one, re-reading."""

    size: int
    count: int
    pairs: int
    most: float
    last: float
    reread: int  # tokens whose keys and values a later chunk reads again


def chunk_table(prompt: int, sizes: Sequence[int]) -> list[ChunkRow]:
    """A row per chunk size."""
    rows = []
    for size in sizes:
        chunks = chunks_of(prompt, size)
        pairs = sum(chunk.pairs for chunk in chunks)
        most = max(chunk.pairs for chunk in chunks) / pairs
        rows.append(
            ChunkRow(size, len(chunks), pairs, most, chunks[-1].pairs / pairs, sum(chunk.start for chunk in chunks))
        )
    return rows
