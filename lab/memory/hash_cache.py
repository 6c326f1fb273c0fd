"""Prefix cache by chained block hashes, as in vLLM.

A block's key is the hash of its content and of the key before it, so equal keys mean equal prefixes. Python's own
`hash` differs between processes; SHA-256 does not. A hit also compares contents, so that a collision of keys can
cost a miss but never wrong tokens (vllm-project/vllm issues 12621, 15297).
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lab.errors import BlockError
from lab.memory.prefix import Contents, Inserted

ROOT = b"start of every prefix"


def chain(key: bytes, content: tuple) -> bytes:
    """Key of a block with this content after the block with that key; the same in every process."""
    return hashlib.sha256(key + repr(content).encode()).digest()


@dataclass(slots=True)
class _Entry:
    block: int
    content: tuple
    parent: int | None  # the cached block before it, by which equal keys of different prefixes are told apart
    users: int = 0


@dataclass(slots=True)
class _Path:
    """The cached blocks a request relies on, in prefix order, and the key after the last of them."""

    blocks: list[int]
    key: bytes = ROOT
    blocked: bool = False  # a key collided: nothing after it can be found

    @property
    def last(self) -> int | None:
        return self.blocks[-1] if self.blocks else None


class HashCache:
    """One dictionary from key to block, and the unused blocks in order of last use."""

    name = "hash"

    def __init__(self, hash_block: Callable[[bytes, tuple], bytes] = chain):
        self.version = 0
        self._hash = hash_block
        self._entries: dict[bytes, _Entry] = {}
        self._key_of: dict[int, bytes] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._paths: dict[int, _Path] = {}  # by owner

    def match(self, contents: Contents) -> list[int]:
        """Follow the chain until a key is missing or its content is another's."""
        blocks: list[int] = []
        key = ROOT
        for content in contents:
            key = self._hash(key, content)
            entry = self._entries.get(key)
            if entry is None or not self._fits(entry, content, blocks[-1] if blocks else None):
                break
            blocks.append(entry.block)
        return blocks

    @staticmethod
    def _fits(entry: _Entry, content: tuple, parent: int | None) -> bool:
        return entry.content == content and entry.parent == parent

    def hold(self, owner: int, contents: Contents) -> None:
        """Take the matched blocks out of the eviction order."""
        self.insert(owner, contents, self.match(contents))

    def drop(self, owner: int) -> None:
        """Tail first, so that the end of a prefix is evicted before its start."""
        path = self._paths.pop(owner, None)
        for block in reversed(path.blocks if path else []):
            entry = self._entries[self._key_of[block]]
            entry.users -= 1
            if entry.users == 0:
                self._idle[block] = None

    def insert(self, owner: int, contents: Contents, blocks: Sequence[int]) -> Inserted:
        """Enter full blocks under their keys; where a key exists, its first block stays."""
        path = self._paths.setdefault(owner, _Path([]))
        taken = []
        for index in range(len(path.blocks), len(contents)):
            if path.blocked:
                break
            key = self._hash(path.key, contents[index])
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry(blocks[index], contents[index], path.last)
                self._key_of[entry.block] = key
                taken.append(entry.block)
            elif not self._fits(entry, contents[index], path.last):
                path.blocked = True
                break
            entry.users += 1
            self._idle.pop(entry.block, None)
            path.blocks.append(entry.block)
            path.key = key
        self.version += bool(taken)
        return Inserted(path.blocks, taken)

    @property
    def num_evictable(self) -> int:
        """Blocks in the eviction order."""
        return len(self._idle)

    def evictable(self, block: int) -> bool:
        """Cached and unused."""
        return block in self._idle

    def evict(self, count: int) -> list[int]:
        """Forget the least recently used blocks; their keys miss from now on."""
        gone = [self._idle.popitem(last=False)[0] for _ in range(min(count, len(self._idle)))]
        for block in gone:
            del self._entries[self._key_of.pop(block)]
        self.version += bool(gone)
        return gone

    def check(self, references: Callable[[int], int]) -> list[int]:
        """Every entry has its block, every unused block is in the order, users are those who rely on it."""
        users = Counter(block for path in self._paths.values() for block in path.blocks)
        for key, entry in self._entries.items():
            if self._key_of.get(entry.block) != key or entry.users != users[entry.block]:
                raise BlockError(f"cached block {entry.block} has {entry.users} users, {users[entry.block]} rely on it")
            if (entry.users == 0) != (entry.block in self._idle):
                raise BlockError(f"cached block {entry.block} has {entry.users} users and is in the wrong list")
            if references(entry.block) < 1:
                raise BlockError(f"block {entry.block} is cached and free")
        return list(self._key_of)
