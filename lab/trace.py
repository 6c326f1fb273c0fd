"""Every step leaves a StepTrace; plots, metrics, exercises and tests read nothing else.

RunTrace keeps steps in columns (arrays, not objects), so that hundreds of thousands of them stay small, and
goes to and comes from JSONL: a line for the run, one per request, one per step. A simulated stretch, in which the same
decode step repeats, is one entry; iterating over the trace or asking for `trace[i]` gives its single steps.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from lab.errors import BadWorkload
from lab.steps import Event as Event
from lab.steps import RowTrace as RowTrace
from lab.steps import StepTrace as StepTrace
from lab.steps import Stretch as Stretch


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


_NO_MARGIN = -1.0  # margins are never negative
_SCALARS = ("index", "waiting", "running", "free", "used", "cached", "recomputed", "slots", "resident")
_scalars_of = attrgetter(*_SCALARS)


@dataclass(slots=True, repr=False)
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

    def __repr__(self) -> str:
        model = self.meta.get("model", "?")
        return f"<RunTrace of {model}: {len(self)} steps, {len(self.requests)} requests>"

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
        self._margins.extend([_NO_MARGIN if row.margin is None else row.margin for row in step.rows])
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
                None if margin == _NO_MARGIN else margin,
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
