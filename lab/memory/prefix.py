"""What a prefix cache is to the memory: it finds, keeps and gives up blocks whose content is already computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

Contents = Sequence[tuple]


class Inserted(NamedTuple):
    """`path` are the cached blocks that now stand for the contents; `taken` of them are new in the cache."""

    path: list[int]
    taken: list[int]


class PrefixCache(Protocol):
    """Holds one reference on every block in it. A block nobody else references can be evicted.

    `contents` are those of a request's leading full blocks, in order (see memory.content).
    """

    name: str
    version: int  # changes whenever a match could change

    def match(self, contents: Contents) -> list[int]:
        """Block ids of the longest cached prefix. Valid until the next insert or evict."""
        ...

    def hold(self, owner: int, contents: Contents) -> None:
        """Request `owner` uses the cached prefix that equals `contents`: nothing of it is evicted until `drop`."""
        ...

    def drop(self, owner: int) -> None:
        """The request no longer uses any block; its cached blocks become the most recently used."""
        ...

    def insert(self, owner: int, contents: Contents, blocks: Sequence[int]) -> Inserted:
        """`owner` has computed `blocks`, of these contents: show them to others and hold the whole path.

        Content that is cached already keeps its first block; the owner is to use that one instead of its own copy.
        """
        ...

    @property
    def num_evictable(self) -> int:
        """Blocks that `evict` could give up now."""
        ...

    def evictable(self, block: int) -> bool:
        """True for a cached block that no request uses."""
        ...

    def evict(self, count: int) -> list[int]:
        """Give up `count` blocks nobody uses, least recently used first, the end of a prefix before its start."""
        ...

    def check(self, references: Callable[[int], int]) -> list[int]:
        """Recount everything; returns the blocks held. Raises BlockError on a difference."""
        ...
