"""Walking a trace for a figure: numbers of every step, without rebuilding each step's rows inside a stretch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lab.trace import RunTrace, StepTrace


class Level(NamedTuple):
    """The pool after a step, and the slots that were in use during it."""

    end: float
    used: int
    cached: int
    free: int
    slots: int
    resident: int


def ends_of(entry: StepTrace) -> tuple[float, ...]:
    """When the steps of an entry ended."""
    return (entry.end,) if entry.stretch is None else tuple(entry.stretch.ends)


def levels(trace: RunTrace) -> Iterator[Level]:
    """Every step's levels, in order; they are those of `StepTrace.single`."""
    for entry in trace.entries():
        stretch, last = entry.stretch, entry.repeat - 1
        for place, (end, held) in enumerate(zip(ends_of(entry), entry.occupancy(), strict=True)):
            if stretch is None or place == last:
                yield Level(end, entry.used, entry.cached, entry.free, *held)
            else:
                taken = (held[0] - entry.slots) // stretch.growth if stretch.growth else 0
                yield Level(end, stretch.used + taken, stretch.cached, stretch.free - taken, *held)


def kinds_of(entry: StepTrace) -> Iterator[tuple[StepTrace, int]]:
    """(step, how many like it) of an entry: the first step of a stretch may compute a prompt of one token."""
    yield entry.single(0), 1
    if entry.repeat > 1:
        yield entry.single(1), entry.repeat - 1


def is_decode(row: tuple, trace: RunTrace) -> bool:
    """Whether a row of a step computes one token after its request's prompt."""
    return row[2] == 1 and row[1] >= trace.requests[row[0]].num_prompt
