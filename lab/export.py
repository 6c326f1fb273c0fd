"""Runs as Chrome trace events (JSON), the format that ui.perfetto.dev and chrome://tracing open.

Each run has two groups of tracks: the engine (its steps, with every counter of StepTrace; waiting, running, blocks,
tokens per step over time) and the requests (one track each: what it was doing, and inside that each of its steps).
Arrows lead from waiting to the step that ended it. Times are whole microseconds, so that slices nest exactly.

Format: "Trace Event Format", docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU; of it this
uses what perfetto.dev/docs/getting-started/other-formats lists: M, X, i, C, s and f.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from lab.errors import BadPolicy
from lab.metrics import Report
from lab.request_spans import Span, Story, stories
from lab.sayable import in_json
from lab.trace import RunTrace, StepTrace

MOST_PARTS = 30_000  # rows of steps that are written as slices of their own, unless asked for: about 6 MB
COUNTERS = ("waiting", "running", "free", "used", "cached", "computed", "padded", "sampled", "carried", "recomputed")

JsonEvent = dict[str, Any]
Run = Report | RunTrace


def chrome_trace(runs: Run | Mapping[str, Run] | Any, path: str | Path, parts: bool | None = None) -> int:
    """Write `runs` (a report, a trace, a comparison, or several by name) to `path`; returns the number of events.

    A name that ends in .gz is compressed; the viewers read that too. `parts` says whether the tracks of requests show
    each step, and not only phases; by default they do unless a run has over 30,000 rows. What is left out the file
    says in `otherData.notes`, and `notes` returns it. What JSON has no word for (NaN, objects) is written as text.
    Raises BadPolicy for anything that is no run.
    """
    events = trace_events(runs, parts)
    about = {"made by": "LLM Batching Lab", "notes": notes(runs, parts), "runs": _about(_traces(runs))}
    head = {"displayTimeUnit": "ms", "otherData": about}
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.write(in_json(head)[:-1] + ', "traceEvents": [\n')
        for number, event in enumerate(events):
            file.write((",\n" if number else "") + in_json(event))
        file.write("\n]}\n")
    return len(events)


def notes(runs: Run | Mapping[str, Run] | Any, parts: bool | None = None) -> list[str]:
    """Sentences that say what a file written with the same arguments does not show, and why."""
    traces = _traces(runs)
    said = [] if traces else ["No run was given: the file is valid and has nothing to show."]
    for name, trace in traces.items():
        rows = _rows(trace)
        if not len(trace):
            said.append(f"{name}: {_nothing(trace)}.")
        elif parts is None and rows > MOST_PARTS:
            said.append(
                f"{name}: tracks of requests show phases without their single steps, because these would be {rows:,} "
                f"slices, more than {MOST_PARTS:,}; chrome_trace(..., parts=True) writes them all."
            )
    return said


def trace_events(runs: Run | Mapping[str, Run] | Any, parts: bool | None = None) -> list[JsonEvent]:
    """The events of `chrome_trace`: names first, then in order of time, an outer slice before those inside it."""
    # Numbers of processes and threads are never used twice: Perfetto looks threads up by their number alone.
    numbers, flows, names, events = count(1), count(1), [], []
    for order, (name, trace) in enumerate(_traces(runs).items()):
        known = stories(trace, _rows(trace) <= MOST_PARTS if parts is None else parts)
        engine, requests = next(numbers), next(numbers)
        clock = "measured" if trace.meta.get("measured", True) else "simulated"
        names += _process(engine, f"{name}: engine", 2 * order, clock)
        names += _process(requests, f"{name}: requests", 2 * order + 1, clock)
        lanes = _Lanes(engine, numbers)
        events += _engine(trace, lanes)
        events += [] if len(trace) else [_moment(_nothing(trace), (engine, None), 0, {})]
        names += [event for place, tid in enumerate(lanes.tids) for event in _thread(engine, tid, place, "steps")]
        for place, story in enumerate(known.values()):
            track = (requests, next(numbers))
            names += _thread(*track, place, f"request {story.info.id}")
            events += [*_story(story, track), *_arrows(story, track, lanes, flows)]
    return names + sorted(events, key=lambda event: (event["ts"], -event.get("dur", 0), event["ph"] != "X"))


@dataclass(slots=True)
class _Lanes:
    """Tracks of an engine's steps: one, and more where steps overlap (several streams)."""

    pid: int
    numbers: Iterator[int]
    tids: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)  # microsecond in which a step starts -> its track

    def place(self, start: int, end: int) -> int:
        """A track that is free at `start`."""
        lane = next((index for index, until in enumerate(self.ends) if until <= start), len(self.ends))
        if lane == len(self.ends):
            self.ends.append(0)
            self.tids.append(next(self.numbers))
        self.ends[lane] = end
        self.places.setdefault(start, self.tids[lane])
        return self.tids[lane]


def _engine(trace: RunTrace, lanes: _Lanes) -> Iterator[JsonEvent]:
    """Steps, counters, and what people changed."""
    shown: dict[str, dict[str, float]] = {}
    for step in sorted(trace, key=lambda step: step.start):
        start, end = _us(step.start), _us(step.end)
        if end > start:
            tid = lanes.place(start, end)
            yield _slice(f"step {step.index}", "step", (lanes.pid, tid), start, end, _step_args(step))
        for name, time, values in _levels(step, start, end):
            if shown.get(name) != values:
                shown[name] = values
                yield {"ph": "C", "name": name, "cat": "counter", "pid": lanes.pid, "ts": time, "args": values}
        for event in step.events:
            if event.kind == "reconfigured":
                yield _moment(f"reconfigured: {event.note}", (lanes.pid, None), _us(event.time), {})
    for change in trace.meta.get("live", []):
        yield _moment(f"{change['what']} → {change['value']}", (lanes.pid, None), _us(change["time"]), {})


def _levels(step: StepTrace, start: int, end: int) -> Iterator[tuple[str, int, dict[str, float]]]:
    """Counters with the microsecond from which they hold: work while the step runs, levels after it."""
    yield "tokens per step", start, {"computed": step.computed, "padded": step.padded}
    seconds = step.end - step.start
    if step.flops and seconds > 0:
        yield "achieved", start, {"GFLOP/s": step.flops / seconds / 1e9, "GB/s": step.bytes / seconds / 1e9}
    yield "requests", end, {"waiting": step.waiting, "running": step.running}
    yield "blocks", end, {"used": step.used, "cached": step.cached, "free": step.free}


def _step_args(step: StepTrace) -> dict[str, Any]:
    args: dict[str, Any] = {"index": step.index, "attention": step.attention, "rows": len(step.rows)}
    args |= {name: getattr(step, name) for name in COUNTERS}
    args |= {"slots": step.slots, "resident": step.resident}
    return args | ({"flops": step.flops, "bytes": step.bytes} if step.flops else {})


def _story(story: Story, track: tuple[int, int]) -> Iterator[JsonEvent]:
    """A request's phases, the steps inside them, and its moments."""
    for span in story.spans:
        yield from _nested(span, track)
    for event in story.moments:
        args = {"value": event.value} | ({"note": event.note} if event.note else {})
        yield _moment(event.kind, track, _us(event.time), args)


def _nested(span: Span, track: tuple[int, int]) -> Iterator[JsonEvent]:
    start, end = _us(span.start), _us(span.end)
    if end > start:
        yield _slice(span.kind, "request", track, start, end, span.args)
        yield from (event for part in span.parts for event in _nested(part, track))


def _arrows(story: Story, track: tuple[int, int], lanes: _Lanes, flows: Iterator[int]) -> Iterator[JsonEvent]:
    """From the beginning of each wait to the step in which it ended."""
    for wait, after in zip(story.spans, story.spans[1:], strict=False):
        target = lanes.places.get(_us(after.start))
        if wait.kind in ("queueing", "preempted") and target and _us(wait.end) > _us(wait.start):
            common = {"name": f"after {wait.kind}", "cat": "wait", "id": next(flows)}
            yield {"ph": "s", **common, "pid": track[0], "tid": track[1], "ts": _us(wait.start)}
            yield {"ph": "f", "bp": "e", **common, "pid": lanes.pid, "tid": target, "ts": _us(after.start)}


def _slice(name: str, category: str, track: tuple[int, int], start: int, end: int, args: dict[str, Any]) -> JsonEvent:
    record = {"ph": "X", "name": name, "cat": category, "pid": track[0], "tid": track[1]}
    return record | {"ts": start, "dur": end - start, "args": args}


def _moment(name: str, track: tuple[int, int | None], time: int, args: dict[str, Any]) -> JsonEvent:
    """An instant on a thread's track, or on its process's without one."""
    pid, tid = track
    where = {"pid": pid, "s": "p"} if tid is None else {"pid": pid, "tid": tid, "s": "t"}
    return {"ph": "i", "name": name, "cat": "event", **where, "ts": time, "args": args}


def _process(pid: int, name: str, order: int, clock: str) -> list[JsonEvent]:
    values = (("process_name", "name", name), ("process_labels", "labels", clock))
    values += (("process_sort_index", "sort_index", order),)
    return [{"ph": "M", "name": kind, "pid": pid, "ts": 0, "args": {key: value}} for kind, key, value in values]


def _thread(pid: int, tid: int, order: int, name: str) -> list[JsonEvent]:
    values = (("thread_name", "name", name), ("thread_sort_index", "sort_index", order))
    head = {"ph": "M", "pid": pid, "tid": tid, "ts": 0}
    return [head | {"name": kind, "args": {key: value}} for kind, key, value in values]


def _traces(runs: Any) -> dict[str, RunTrace]:
    if isinstance(runs, Report | RunTrace):
        runs = {"run": runs}
    found = getattr(runs, "reports", runs)
    if not isinstance(found, Mapping):
        raise BadPolicy(f"a {type(runs).__name__} is no run: give a report, a trace, a comparison, or several by name")
    found = {str(name): getattr(run, "trace", run) for name, run in found.items()}
    for name, trace in found.items():
        if not isinstance(trace, RunTrace):
            raise BadPolicy(f"{name}: a {type(trace).__name__} is no run: give its report or its trace")
    if len(found) == 1 and "run" in found:
        return {found["run"].meta.get("axes", {}).get("batching", "run"): found["run"]}
    return found


def _about(traces: dict[str, RunTrace]) -> dict[str, Any]:
    return {name: trace.meta for name, trace in traces.items()}


def _nothing(trace: RunTrace) -> str:
    refused = sum(info.finish_reason == "refused" for info in trace.requests.values())
    return "no step was computed" + (f", {refused} of {len(trace.requests)} requests were refused" if refused else "")


def _rows(trace: RunTrace) -> int:
    return sum(len(entry.rows) * entry.repeat for entry in trace.entries())


def _us(seconds: float) -> int:
    """Microseconds, whole: two slices that touch in seconds touch here too."""
    return round(1e6 * seconds)
