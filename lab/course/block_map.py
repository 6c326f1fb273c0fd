"""Who holds which block of the pool: snapshots of an engine between two steps, for drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lab.clock import Driver, make_clock
from lab.engine import Engine
from lab.running import build_engine
from lab.workload import Workload

SAMPLE = 1 << 32  # ids of further samples of a prompt are the parent's plus a multiple of this


@dataclass(frozen=True, slots=True)
class BlockMap:
    """The pool after one step: the requests that hold each block, and how many of its slots have a token."""

    title: str
    block_size: int
    owners: tuple[tuple[int, ...], ...]  # by block id
    filled: tuple[int, ...]
    waiting: int

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return sum(not owners for owners in self.owners)

    @property
    def longest_hole(self) -> int:
        """Most free blocks in a row."""
        text = "".join("x" if owners else " " for owners in self.owners)
        return max(map(len, text.split("x")))

    def table(self, request: int) -> list[int]:
        """Blocks of one request by id; with contiguous memory they are neighbours."""
        return [block for block, owners in enumerate(self.owners) if request in owners]


def name_of(request: int) -> str:
    """0, 1, 2 …; the further samples of request 0 are 0b, 0c, …"""
    sample, parent = divmod(request, SAMPLE)
    return f"{parent}{chr(ord('a') + sample)}" if sample else str(parent)


def block_map(engine: Engine, title: str = "") -> BlockMap:
    """The pool as it is now."""
    memory = engine.memory
    owners: list[list[int]] = [[] for _ in range(memory.num_blocks)]
    filled = [0] * memory.num_blocks
    for request in engine.requests.values():
        for place, block in enumerate(request.block_table):
            owners[block].append(request.id)
            held = request.num_computed - place * memory.block_size
            filled[block] = max(filled[block], min(max(held, 0), memory.block_size))
    held_by = tuple(tuple(requests) for requests in owners)
    return BlockMap(title, memory.block_size, held_by, tuple(filled), len(engine.scheduler.waiting))


def block_maps(work: Workload, model: Any, steps: Sequence[int], **options: Any) -> list[BlockMap]:
    """The pool after each of `steps` (counted from 0). Options are those of `lab.run`; time is virtual."""
    requests = work.requests(model)
    engine = build_engine(model, requests, **options)
    driver, maps, done = Driver(engine, requests, make_clock("virtual")), [], 0
    while not driver.done and done <= max(steps):
        if driver.tick() is not None:
            if done in steps:
                maps.append(block_map(engine, f"after step {done}"))
            done += 1
    return maps


def block_tables(work: Workload, model: Any, step: int, **options: Any) -> dict[int, list[int]]:
    """Block table of every running request after `step`, in the order of its tokens."""
    requests = work.requests(model)
    engine = build_engine(model, requests, **options)
    driver, done = Driver(engine, requests, make_clock("virtual")), 0
    while not driver.done and done <= step:
        done += driver.tick() is not None
    return {request.id: list(request.block_table) for request in engine.requests.values() if request.block_table}


def pools(work: Workload, model: Any, step: int, runs: dict[str, dict[str, Any]], **common: Any) -> list[BlockMap]:
    """The pool after the same step of several runs, each titled with its name."""
    made = []
    for name, options in runs.items():
        (found,) = block_maps(work, model, [step], **(common | options))
        made.append(replace(found, title=name))
    return made
