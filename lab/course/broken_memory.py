"""Engines with one memory bug each, for the break-it exercises of notebooks 05, 06 and 08. Reading on spoils them.

Each bug is a few lines planted into a healthy engine; its origin is a public thread, named beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from lab.course.broken import Plant, run_planted
from lab.engine import Engine
from lab.errors import BadPolicy
from lab.memory.radix_cache import Node, RadixCache
from lab.metrics import Report
from lab.request import Request
from lab.workload import Workload


def run(work: Workload, model: Any, bug: str, **options: Any) -> Report:
    """The workload through the broken engine of exercise `bug`; options are those of `lab.run`."""
    if bug not in BUGS:
        raise BadPolicy(f"there is no broken engine {bug!r}; there are {', '.join(BUGS)}")
    return run_planted(work, model, BUGS[bug], **options)


def always_wants_a_block(engine: Engine) -> None:
    """Before every token asks for a free block, also where the last block still has room: preempts for nothing.

    microsoft/sarathi-serve, `can_append_slot`.
    """
    memory = engine.memory
    healthy = memory.can_grow

    def can_grow(request: Request, num_tokens: int) -> bool:
        return healthy(request, num_tokens) and memory.counts().free + memory.counts().cached >= 1

    memory.can_grow = can_grow  # type: ignore[method-assign]


def found_and_not_used(engine: Engine) -> None:
    """Finds the prefix, reports it, and computes the whole prompt all the same. Tokens stay right.

    Of the kind of rasbt/LLMs-from-scratch issues 913 and 981: an optimisation that is there and not on.
    """
    memory = engine.memory
    healthy = memory.admit

    def admit(request: Request) -> int:
        found = healthy(request)
        if found:
            memory.release(request)
            request.num_computed = 0
        return found

    memory.admit = admit  # type: ignore[method-assign]


class BookTree(RadixCache):
    """A radix cache whose split does not hang the new upper half under the parent.

    cfregly/ai-performance-engineering, code/ch16/radix_attention_example.py, `_split_edge`: after a split both halves
    are out of reach, and so is what is inserted below them.
    """

    def _split(self, node: Node, length: int) -> Node:
        upper = super()._split(node, length)
        upper.parent.children[upper.contents[0]] = node  # the parent still points to the lower half
        return upper

    def _walk(self, *arguments: Any) -> Iterator[tuple[Node, int]]:
        """An edge that agrees in nothing ends the walk; with healthy splits there is none."""
        return takewhile(lambda found: found[1], super()._walk(*arguments))


def matches_the_first_chunk(engine: Engine) -> None:
    """Cuts a prompt into chunks before it asks the cache, so that at most the first chunk can be found.

    ai-dynamo/dynamo issue 13188, pull request 13312.
    """
    memory = engine.memory
    healthy = memory.match
    chunk = engine.scheduler.axes.chunking.max_tokens

    def match(request: Request) -> list[int]:
        return healthy(request)[: chunk // memory.block_size]

    memory.match = match  # type: ignore[method-assign]


BUGS: dict[str, Plant] = {
    "05.4": always_wants_a_block,
    "06.4": found_and_not_used,
    "08.4": matches_the_first_chunk,
}
