"""The lab's radix cache on words instead of tokens, one word per block, with a picture of each change.

`TinyTree()` is the real `RadixCache`, fed with sentences; `TinyTree(cache)` takes any other, a broken one too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from lab.memory.hash_cache import ROOT, chain
from lab.memory.radix_cache import Node, RadixCache


@dataclass(frozen=True, slots=True)
class Branch:
    """A node as it was: its words, who uses it, and what became of it (new, matched or gone; "" for neither)."""

    words: tuple[str, ...]
    locks: int
    children: tuple[Branch, ...]
    mark: str = ""
    blocks: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """Its words in one line."""
        return " ".join(self.words)

    @property
    def leaves(self) -> int:
        """Lines that it needs in a drawing."""
        return sum(child.leaves for child in self.children) or 1


@dataclass(frozen=True, slots=True)
class Frame:
    """The tree after one change."""

    title: str
    roots: tuple[Branch, ...]


class TinyTree:
    """insert, match and evict by sentence. `frames` collects a picture per change."""

    def __init__(self, cache: Any = None):
        self.cache = RadixCache() if cache is None else cache
        self.frames: list[Frame] = []
        self._blocks, self._owners = count(), count()
        self._using: dict[str, int] = {}

    def insert(self, sentence: str, keep: bool = False) -> int:
        """Cache a sentence; returns how many of its words were there. With `keep` it stays in use (locked)."""
        words = sentence.split()
        contents = [(word,) for word in words]
        before, found = set(self._held()), len(self.cache.match(contents))
        owner = next(self._owners)
        self.cache.insert(owner, contents, [next(self._blocks) for _ in words])
        if keep:
            self._using[sentence] = owner
        else:
            self.cache.drop(owner)
        fresh = set(self._held()) - before
        self._draw(f"insert “{sentence}”: {found} of {len(words)} words are there", "new", fresh)
        return found

    def match(self, sentence: str) -> int:
        """How many words of it are cached."""
        words = sentence.split()
        found = self.cache.match([(word,) for word in words])
        self._draw(f"match “{sentence}”: {len(found)} of {len(words)} words", "matched", set(found))
        return len(found)

    def done(self, sentence: str) -> None:
        """Nobody uses the sentence any more."""
        self.cache.drop(self._using.pop(sentence))
        self._draw(f"“{sentence}” is no longer in use", "", set())

    def evict(self, words: int) -> int:
        """Make room by that many words; returns how many could be given up."""
        before = self._snapshot("", set())
        gone = set(self.cache.evict(words))
        title = f"evict {words} words: {len(gone)} are given up (dashed: where from)"
        self.frames.append(Frame(title, tuple(_marked(root, "gone", gone) for root in before)))
        return len(gone)

    def _held(self) -> list[int]:
        return [block for node in self.cache.nodes() for block in node.blocks]

    def _draw(self, title: str, mark: str, blocks: set[int]) -> None:
        self.frames.append(Frame(title, self._snapshot(mark, blocks)))

    def _snapshot(self, mark: str, blocks: set[int]) -> tuple[Branch, ...]:
        return tuple(_marked(_branch(node), mark, blocks) for node in self.cache.root.children.values())


def keys_of(sentence: str, size: int = 3) -> list[str]:
    """Blocks of `size` words, each with the first digits of its key in the hash cache."""
    words, key, out = sentence.split(), ROOT, []
    for start in range(0, len(words) // size * size, size):
        key = chain(key, tuple(words[start : start + size]))
        out.append(f"{' '.join(words[start : start + size])} → {key.hex()[:6]}")
    return out


def _branch(node: Node) -> Branch:
    words = tuple(content[0] for content in node.contents)
    return Branch(words, node.locks, tuple(map(_branch, node.children.values())), blocks=tuple(node.blocks))


def _marked(branch: Branch, mark: str, blocks: set[int]) -> Branch:
    """Mark nodes with any of the blocks, down the tree."""
    hit = mark if blocks & set(branch.blocks) else branch.mark
    return replace(branch, mark=hit, children=tuple(_marked(child, mark, blocks) for child in branch.children))


def lines(frames: Sequence[Frame]) -> str:
    """The frames as indented text."""
    out = []
    for frame in frames:
        out.append(frame.title)
        out += [line for root in frame.roots for line in _indented(root, 1)] or ["  (empty)"]
    return "\n".join(out)


def _indented(branch: Branch, depth: int) -> list[str]:
    notes = [note for note in (branch.mark, f"used by {branch.locks}" if branch.locks else "") if note]
    line = "  " * depth + branch.label + (f"  [{', '.join(notes)}]" if notes else "")
    return [line, *(text for child in branch.children for text in _indented(child, depth + 1))]
