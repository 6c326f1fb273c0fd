"""Every step leaves a StepTrace; plots, metrics, exercises and tests read nothing else.

RunTrace keeps steps in columns (arrays, not objects), so that hundreds of thousands of them stay small, and
goes to and comes from JSONL: a line for the run, one per request, one per step.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
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
class StepTrace:
    """What one step did. Counters are of this step; block counts and queue lengths are taken after it."""

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


_SCALARS = ("index", "waiting", "running", "free", "used", "cached", "recomputed", "slots", "resident")


@dataclass(slots=True)
class RunTrace:
    """All steps of a run. `meta` names clock, axes, model and sizes; `requests` maps id to RequestInfo."""

    meta: dict[str, Any] = field(default_factory=dict)
    requests: dict[int, RequestInfo] = field(default_factory=dict)
    late_events: list[Event] = field(default_factory=list)  # after the last step
    _times: array = field(default_factory=lambda: array("d"))
    _scalars: array = field(default_factory=lambda: array("q"))
    _kinds: list[str] = field(default_factory=list)
    _rows: array = field(default_factory=lambda: array("q"))
    _margins: array = field(default_factory=lambda: array("d"))
    _row_ends: array = field(default_factory=lambda: array("q"))
    _events: dict[int, list[Event]] = field(default_factory=dict)

    def append(self, step: StepTrace) -> None:
        """Store a step in columns."""
        if step.events:
            self._events[len(self)] = list(step.events)
        self._times.extend((step.start, step.end))
        self._scalars.extend(getattr(step, name) for name in _SCALARS)
        self._kinds.append(step.attention)
        for row in step.rows:
            has_token = row.token is not None
            self._rows.extend((row.request, row.start, row.num_tokens, row.padding, row.sampled, has_token))
            self._rows.append(row.token if has_token else 0)
            self._margins.append(float("nan") if row.margin is None else row.margin)
        self._row_ends.append(len(self._margins))

    def __len__(self) -> int:
        return len(self._row_ends)

    def __iter__(self) -> Iterator[StepTrace]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> StepTrace:
        """Rebuild one step."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"step {index} of a run of {len(self)} steps")
        index %= len(self)
        width = len(_SCALARS)
        scalars = dict(zip(_SCALARS, self._scalars[index * width : (index + 1) * width], strict=True))
        first = self._row_ends[index - 1] if index else 0
        rows = [self._row(position) for position in range(first, self._row_ends[index])]
        start, end = self._times[2 * index], self._times[2 * index + 1]
        events = self._events.get(index, [])
        return StepTrace(start=start, end=end, attention=self._kinds[index], rows=rows, events=events, **scalars)

    def _row(self, position: int) -> RowTrace:
        request, start, count, padding, sampled, has_token, token = self._rows[7 * position : 7 * position + 7]
        margin = self._margins[position]
        return RowTrace(
            request,
            start,
            count,
            padding,
            bool(sampled),
            token if has_token else None,
            None if margin != margin else margin,
        )

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
            for step in self:
                file.write(json.dumps({"step": _step_record(step)}) + "\n")
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
            self.append(StepTrace(rows=rows, events=events, **value))
        elif kind == "late_events":
            self.late_events = [Event(*event) for event in value]
        else:
            raise KeyError(f"unknown record {kind!r}")


def _step_record(step: StepTrace) -> dict[str, Any]:
    return {name: getattr(step, name) for name in StepTrace.__dataclass_fields__}
