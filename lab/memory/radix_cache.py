"""Prefix cache as a radix tree, as in SGLang's RadixAttention (NeurIPS'24, arXiv:2312.07104).

Each edge carries a run of blocks; where two prompts part, the edge is split. Requests lock the path they use.
Only leaves that nobody locks are evicted, least recently used first, from their last block backwards.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import count as counter

from lab.errors import BlockError
from lab.memory.prefix import Contents, Inserted


class Node:
    """A run of blocks below its parent. `locks` counts the requests whose path ends here or below."""

    __slots__ = ("parent", "children", "contents", "blocks", "end", "locks", "last_used")

    def __init__(self, parent: Node | None, contents: list[tuple], blocks: list[int]):
        self.parent, self.contents, self.blocks = parent, contents, blocks
        self.children: dict[tuple, Node] = {}  # by the first block's content
        self.end = len(blocks) + (parent.end if parent else 0)  # blocks from the root to the end of this run
        self.locks = 0
        self.last_used = 0


def shared_length(left: Sequence[tuple], right: Sequence[tuple]) -> int:
    """How many leading entries are equal; whole runs are compared at once before looking for the difference."""
    length = min(len(left), len(right))
    if left[:length] == right[:length]:
        return length
    return next(place for place in range(length) if left[place] != right[place])


class RadixCache:
    """match / hold / insert / evict over a tree whose root is empty and never evicted."""

    name = "radix"

    def __init__(self) -> None:
        self.version = 0
        self.root = Node(None, [], [])
        self.num_blocks = 0  # blocks in the tree
        self._locked = 0  # of which on locked paths
        self._time = counter(1)
        self._end: dict[int, Node] = {}  # owner -> last node of its locked path
        self._idle: set[int] = set()
        self._leaves: list[tuple[int, int, Node]] = []  # heap of leaves nobody locks; stale entries are skipped

    # -- reading -------------------------------------------------------------------------------------------
    def match(self, contents: Contents) -> list[int]:
        """Walk down while whole blocks agree; the last edge may match in part. Changes nothing."""
        blocks: list[int] = []
        for node, length in self._walk(contents, self.root):
            blocks += node.blocks[:length]
        return blocks

    def _walk(self, contents: Contents, node: Node) -> Iterator[tuple[Node, int]]:
        """Nodes below `node` on the path of `contents`, each with how many of its blocks agree."""
        place = node.end
        while place < len(contents):
            child = node.children.get(contents[place])
            if child is None:
                return
            length = shared_length(child.contents, contents[place : place + len(child.contents)])
            yield child, length
            if length < len(child.contents):
                return
            node, place = child, place + length

    def nodes(self) -> Iterator[Node]:
        """Every node but the root, parents first."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    # -- changing ------------------------------------------------------------------------------------------
    def hold(self, owner: int, contents: Contents) -> None:
        """Lock the path of `contents`, splitting its last edge if the match ends inside it."""
        node = self._descend(contents, self.root)
        place = node.end
        if place < len(contents):
            raise BlockError(f"request {owner} holds {len(contents)} cached blocks, {place} are cached")
        self._move_lock(owner, node)

    def drop(self, owner: int) -> None:
        """Unlock the path and mark it as just used."""
        node = self._end.pop(owner, None)
        if node is not None:
            self._touch(node)
            self._lock(node, -1)
            self._offer(node)

    def insert(self, owner: int, contents: Contents, blocks: Sequence[int]) -> Inserted:
        """Add what the tree does not have below the longest match, and lock the whole path for the owner.

        Where somebody else was first with the same tokens, their blocks stay in the tree.
        """
        held = self._end.get(owner, self.root)  # what the owner holds already agrees with its contents
        node = self._descend(contents, held)
        fresh = list(blocks[node.end :])
        if not fresh:
            self._move_lock(owner, node)
            return Inserted(self._path(node), [])
        if node is held and node.locks == 1 and not node.children:
            self._extend(node, contents[node.end :], fresh)  # the owner's own leaf simply grows
        else:
            node = self._grow(owner, node, contents[node.end :], fresh)
        self._touch(node)
        self.version += 1
        return Inserted(self._path(node), fresh)

    def _extend(self, leaf: Node, contents: Contents, blocks: list[int]) -> None:
        leaf.contents += contents
        leaf.blocks += blocks
        leaf.end += len(blocks)
        self.num_blocks += len(blocks)
        self._locked += len(blocks)

    def _grow(self, owner: int, node: Node, contents: Contents, blocks: list[int]) -> Node:
        child = Node(node, list(contents), blocks[:])
        node.children[child.contents[0]] = child
        self.num_blocks += len(blocks)
        self._idle.update(blocks)
        self._move_lock(owner, child)
        return child

    @staticmethod
    def _path(node: Node) -> list[int]:
        """Blocks from the root to `node`."""
        runs = []
        step: Node | None = node
        while step is not None:
            runs.append(step.blocks)
            step = step.parent
        return [block for run in reversed(runs) for block in run]

    def _descend(self, contents: Contents, node: Node) -> Node:
        """The node where the match of `contents` at or below `node` ends, split off if need be."""
        for child, length in list(self._walk(contents, node)):
            node = child if length == len(child.contents) else self._split(child, length)
        return node

    def _split(self, node: Node, length: int) -> Node:
        """Cut an edge after `length` blocks. The lower part stays the same object, so owners' ends stay valid."""
        upper = Node(node.parent, node.contents[:length], node.blocks[:length])
        upper.locks, upper.last_used = node.locks, node.last_used
        node.parent.children[upper.contents[0]] = upper
        node.contents, node.blocks, node.parent = node.contents[length:], node.blocks[length:], upper
        upper.children[node.contents[0]] = node  # its `end` stays where it was
        return upper

    def _move_lock(self, owner: int, node: Node) -> None:
        self._lock(node, +1)
        before = self._end.get(owner)
        if before is not None:
            self._lock(before, -1)
            self._offer(before)
        self._end[owner] = node

    def _lock(self, node: Node, change: int) -> None:
        """Add `change` locks along the path to the root, keeping the count of locked blocks."""
        step = node
        while step.parent is not None:
            was = step.locks
            step.locks += change
            if step.locks < 0:
                raise BlockError("a path of the radix tree is unlocked more often than locked")
            if (was == 0) != (step.locks == 0):
                self._locked += len(step.blocks) if was == 0 else -len(step.blocks)
                (self._idle.difference_update if was == 0 else self._idle.update)(step.blocks)
            step = step.parent

    def _touch(self, node: Node) -> None:
        """Everything on the path was used just now."""
        now, step = next(self._time), node
        while step.parent is not None:
            step.last_used, step = now, step.parent

    # -- evicting ------------------------------------------------------------------------------------------
    @property
    def num_evictable(self) -> int:
        """Blocks on no locked path."""
        return self.num_blocks - self._locked

    def evictable(self, block: int) -> bool:
        """In the tree, on no locked path."""
        return block in self._idle

    def evict(self, count: int) -> list[int]:
        """Take blocks from the ends of unlocked leaves, least recently used leaf first."""
        gone: list[int] = []
        while self._leaves and len(gone) < count:
            used, _, leaf = heapq.heappop(self._leaves)
            if leaf.children or leaf.locks or not leaf.blocks or leaf.last_used != used:
                continue
            parent = leaf.parent
            gone += self._trim(leaf, count - len(gone))
            self._offer(leaf if leaf.blocks else parent)
        self.version += bool(gone)
        return gone

    def _offer(self, node: Node) -> None:
        """Put a node into the eviction order if it is a leaf that nobody locks."""
        if node.blocks and not node.children and not node.locks:
            heapq.heappush(self._leaves, (node.last_used, id(node), node))

    def _trim(self, leaf: Node, count: int) -> list[int]:
        """Cut up to `count` blocks from a leaf's end; an empty leaf leaves the tree."""
        first = leaf.contents[0]
        keep = max(0, len(leaf.blocks) - count)
        gone = leaf.blocks[keep:][::-1]
        leaf.contents, leaf.blocks = leaf.contents[:keep], leaf.blocks[:keep]
        leaf.end -= len(gone)
        if not keep:
            del leaf.parent.children[first]
        self.num_blocks -= len(gone)
        self._idle.difference_update(gone)
        return gone

    def check(self, references: Callable[[int], int]) -> list[int]:
        """Counters equal a tree walk, parents are linked, locks are the owners', no block is in two nodes."""
        locks: dict[int, int] = {}
        for end in self._end.values():
            step = end
            while step.parent is not None:
                locks[id(step)] = locks.get(id(step), 0) + 1
                step = step.parent
        blocks: list[int] = []
        locked = 0
        for node in self.nodes():
            linked = node.parent.children.get(node.contents[0]) is node and node.end == node.parent.end + len(
                node.blocks
            )
            if not linked or len(node.contents) != len(node.blocks):
                raise BlockError(f"the radix node with blocks {node.blocks} is not its parent's child")
            if node.locks != locks.get(id(node), 0):
                raise BlockError(
                    f"the radix node with blocks {node.blocks} has {node.locks} locks, not {locks.get(id(node), 0)}"
                )
            blocks += node.blocks
            locked += len(node.blocks) if node.locks else 0
        if len(set(blocks)) != len(blocks) or len(blocks) != self.num_blocks or locked != self._locked:
            raise BlockError(
                f"the radix tree holds {len(blocks)} blocks ({locked} locked), its counters say "
                f"{self.num_blocks} ({self._locked})"
            )
        for block in blocks:
            if references(block) < 1:
                raise BlockError(f"block {block} is in the radix tree and free")
        return blocks
