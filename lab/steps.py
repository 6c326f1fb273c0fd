"""What a trace is made of: the rows, events and counters of one step, or of a stretch of equal ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple


class RowTrace(NamedTuple):
    """One request's share of a step; `token` is what it sampled (None: nothing, or only priced)."""

    request: int
    start: int  # tokens computed before the step
    num_tokens: int
    padding: int
    sampled: bool
    token: int | None = None
    margin: float | None = None  # difference of the two largest logits


class Event(NamedTuple):
    """Something that happened to a request at `time`.

    kinds: arrived, admitted (value: tokens found in a cache), preempted (value: computed tokens dropped),
    finished (value: output tokens), delivered (value: tokens handed to the user), aborted, refused,
    reconfigured (request -1).
    """

    time: float
    kind: str
    request: int
    value: int = 0
    note: str = ""


@dataclass(slots=True)
class Stretch:
    """What a StepTrace needs to stand for `len(ends)` decode steps that differ in nothing but their contexts.

    Queue lengths and block counts are those after every step but the last, where requests end; each request takes
    another block whenever its tokens have filled the last one (`growth` tokens a block; 0: all were reserved).
    """

    ends: Sequence[float]  # when each of the steps ended, seconds on the driver's clock
    waiting: int
    running: int
    free: int  # after the first step
    used: int
    cached: int
    growth: int
    opening: int  # how many of the events belong to the first step; the others end the last one

    def new_blocks(self, rows: Sequence[RowTrace], steps: int) -> int:
        """Blocks that the steps after the first one have taken when `steps` of them are over."""
        if not self.growth:
            return 0
        size = self.growth
        return sum((row.start + steps) // size - row.start // size for row in rows if row.num_tokens)


@dataclass(slots=True)
class StepTrace:
    """What one step did. Counters are of this step; block counts and queue lengths are taken after it.

    With a `stretch` it stands for many steps: `start`, `index`, rows, slots and resident are of the first, `end`, queue
    lengths and block counts of the last, `flops` and `bytes` of all.
    """

    index: int
    start: float  # seconds on the driver's clock
    end: float
    attention: str
    rows: list[RowTrace]
    events: list[Event]
    waiting: int
    running: int
    free: int
    used: int
    cached: int  # blocks held only by a prefix cache
    recomputed: int = 0  # tokens computed although they had been before a preemption
    slots: int = 0  # key-value slots in the blocks used by this step
    resident: int = 0  # how many of those slots hold a token
    flops: float = 0.0  # operations and bytes moved (0: unknown); inside a stretch, the mean of its steps
    bytes: float = 0.0
    stretch: Stretch | None = None

    @property
    def repeat(self) -> int:
        """Steps that this entry stands for."""
        return 1 if self.stretch is None else len(self.stretch.ends)

    def steps(self) -> Iterator[StepTrace]:
        """The single steps of an entry, in order."""
        if self.stretch is None:
            yield self
            return
        for place in range(self.repeat):
            yield self.single(place)

    def occupancy(self) -> Iterator[tuple[int, int]]:
        """Slots in used blocks and how many hold a token, for each of the steps."""
        yield self.slots, self.resident
        stretch, rows = self.stretch, [row for row in self.rows if row.num_tokens]
        if stretch is None:
            return
        slots, size = self.slots, stretch.growth
        if size:
            fills = Counter(-row.start % size for row in rows)  # requests that need a block at these places
        for place in range(1, self.repeat):
            if size:
                slots += size * fills[place % size]
            yield slots, self.resident + place * len(rows)

    def single(self, place: int) -> StepTrace:
        """The step at `place` of a stretch."""
        stretch, last = self.stretch, self.repeat - 1
        if stretch is None:
            return self
        rows = [row._replace(start=row.start + place) if row.num_tokens else row for row in self.rows]
        taken = stretch.new_blocks(self.rows, place)
        opening, closing = self.events[: stretch.opening], self.events[stretch.opening :]
        step = replace(
            self,
            index=self.index + place,
            start=stretch.ends[place - 1] if place else self.start,
            end=stretch.ends[place],
            rows=rows,
            events=(opening if place == 0 else []) + (closing if place == last else []),
            slots=self.slots + taken * stretch.growth,
            resident=self.resident + place * self.computed,
            flops=self.flops / self.repeat,
            bytes=self.bytes / self.repeat,
            stretch=None,
        )
        if place < last:
            step.waiting, step.running, step.cached = stretch.waiting, stretch.running, stretch.cached
            step.free, step.used = stretch.free - taken, stretch.used + taken
        return step

    @property
    def computed(self) -> int:
        """Real tokens computed in this step."""
        return sum(row.num_tokens for row in self.rows)

    @property
    def padded(self) -> int:
        """Padding tokens computed in this step."""
        return sum(row.padding for row in self.rows)

    @property
    def sampled(self) -> int:
        """Output tokens this step produced."""
        return sum(row.sampled for row in self.rows)

    @property
    def carried(self) -> int:
        """Rows computed for requests that had already finished: wasted slots."""
        return sum(row.num_tokens == 0 for row in self.rows)
