"""Every step leaves a StepTrace; plots, metrics, exercises and tests read nothing else.

RunTrace keeps steps in columns (arrays, not objects), so that hundreds of thousands of them stay small, and
goes to and comes from JSONL: a line for the run, one per request, one per step. A simulated stretch, in which the same
decode step repeats, is one entry; iterating over the trace or asking for `trace[i]` gives its single steps.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from lab.errors import BadWorkload


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


@dataclass(slots=True)
class RequestInfo:
    """The constant part of a request, and how it ended."""

    id: int
    arrival_time: float
    num_prompt: int
    max_tokens: int
    priority: int = 0
    deadline: float | None = None
    finish_reason: str | None = None
    error: str | None = None


_NAN = float("nan")
_SCALARS = ("index", "waiting", "running", "free", "used", "cached", "recomputed", "slots", "resident")
_scalars_of = attrgetter(*_SCALARS)


@dataclass(slots=True)
class RunTrace:
    """All steps of a run. `meta` names clock, axes, model and sizes; `requests` maps id to RequestInfo."""

    meta: dict[str, Any] = field(default_factory=dict)
    requests: dict[int, RequestInfo] = field(default_factory=dict)
    late_events: list[Event] = field(default_factory=list)  # after the last step
    _times: array = field(default_factory=lambda: array("d"))  # start, end, flops, bytes of each entry
    _scalars: array = field(default_factory=lambda: array("q"))
    _kinds: list[str] = field(default_factory=list)
    _rows: array = field(default_factory=lambda: array("q"))
    _margins: array = field(default_factory=lambda: array("d"))
    _row_ends: array = field(default_factory=lambda: array("q"))
    _events: dict[int, list[Event]] = field(default_factory=dict)  # by entry
    _stretches: dict[int, Stretch] = field(default_factory=dict)  # by entry
    _step_ends: array = field(default_factory=lambda: array("q"))  # steps up to and with each entry

    def append(self, step: StepTrace) -> None:
        """Store a step, or a stretch of them, in columns."""
        entry = len(self._row_ends)
        if step.events:
            self._events[entry] = list(step.events)
        if step.stretch is not None:
            self._stretches[entry] = step.stretch
        self._times.extend((step.start, step.end, step.flops, step.bytes))
        self._scalars.extend(_scalars_of(step))
        self._kinds.append(step.attention)
        for request, start, count, padding, sampled, token, _ in step.rows:
            self._rows.extend((request, start, count, padding, sampled, token is not None, token or 0))
        self._margins.extend([_NAN if row.margin is None else row.margin for row in step.rows])
        self._row_ends.append(len(self._margins))
        self._step_ends.append(len(self) + step.repeat)

    def __len__(self) -> int:
        return self._step_ends[-1] if self._step_ends else 0

    def __iter__(self) -> Iterator[StepTrace]:
        return (step for entry in self.entries() for step in entry.steps())

    def __getitem__(self, index: int) -> StepTrace:
        """Rebuild one step."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"step {index} of a run of {len(self)} steps")
        index %= len(self)
        entry = bisect_right(self._step_ends, index)
        return self._entry(entry).single(index - (self._step_ends[entry - 1] if entry else 0))

    def entries(self) -> Iterator[StepTrace]:
        """Steps in order, a stretch being one StepTrace: for those who count and need not see each step."""
        return (self._entry(entry) for entry in range(len(self._row_ends)))

    def _entry(self, entry: int) -> StepTrace:
        width = len(_SCALARS)
        scalars = dict(zip(_SCALARS, self._scalars[entry * width : (entry + 1) * width], strict=True))
        rows = self._rows_of(self._row_ends[entry - 1] if entry else 0, self._row_ends[entry])
        start, end, flops, moved = self._times[4 * entry : 4 * entry + 4]
        return StepTrace(
            start=start,
            end=end,
            attention=self._kinds[entry],
            rows=rows,
            events=self._events.get(entry, []),
            flops=flops,
            bytes=moved,
            stretch=self._stretches.get(entry),
            **scalars,
        )

    def _rows_of(self, first: int, last: int) -> list[RowTrace]:
        numbers = iter(self._rows[7 * first : 7 * last])
        return [
            RowTrace(
                request,
                start,
                count,
                padding,
                sampled == 1,
                token if has_token else None,
                margin if margin == margin else None,
            )
            for (request, start, count, padding, sampled, has_token, token), margin in zip(
                zip(*[numbers] * 7, strict=True), self._margins[first:last], strict=True
            )
        ]

    def events(self) -> Iterator[Event]:
        """Every event of the run in order."""
        for index in sorted(self._events):
            yield from self._events[index]
        yield from self.late_events

    def write(self, path: str | Path) -> None:
        """Write JSONL; `read` gives back an equal trace."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps({"run": self.meta}) + "\n")
            for info in self.requests.values():
                file.write(json.dumps({"request": asdict(info)}) + "\n")
            for entry in self.entries():
                file.write(json.dumps({"step": _step_record(entry)}) + "\n")
            file.write(json.dumps({"late_events": self.late_events}) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> RunTrace:
        """Read JSONL. Raises BadWorkload naming the first line that cannot be read."""
        trace = cls()
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    trace._take(json.loads(line))
                except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
                    raise BadWorkload(f"{path}, line {number}: not a line of a run trace ({error})") from error
        return trace

    def _take(self, record: dict[str, Any]) -> None:
        ((kind, value),) = record.items()
        if kind == "run":
            self.meta = value
        elif kind == "request":
            self.requests[value["id"]] = RequestInfo(**value)
        elif kind == "step":
            rows = [RowTrace(*row) for row in value.pop("rows")]
            events = [Event(*event) for event in value.pop("events")]
            stretch = value.pop("stretch", None)
            self.append(StepTrace(rows=rows, events=events, stretch=stretch and Stretch(**stretch), **value))
        elif kind == "late_events":
            self.late_events = [Event(*event) for event in value]
        else:
            raise KeyError(f"unknown record {kind!r}")


def _step_record(step: StepTrace) -> dict[str, Any]:
    record = {name: getattr(step, name) for name in StepTrace.__dataclass_fields__}
    if step.stretch is None:
        del record["stretch"]
    else:
        record["stretch"] = asdict(step.stretch) | {"ends": list(step.stretch.ends)}
    return record
