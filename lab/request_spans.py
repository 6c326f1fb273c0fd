"""What each request was doing at every moment of a run, from its trace: phases, and the share of each step in them.

queueing    arrived, not yet admitted          preempted   thrown out, waits to come back
prefill     steps that compute prompt tokens   decode      steps that compute its last output token
stalled     admitted, but at least one step went by without it
finished, still computed   rows that a static batch carries on for it
delivery    finished; its tokens are held back until the batch ends
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lab.trace import Event, RequestInfo, RowTrace, RunTrace, StepTrace

AFTER_THE_STEP = ("finished", "delivered", "aborted")
WASTED = "finished, still computed"


@dataclass(slots=True)
class Span:
    """A stretch [start, end) in seconds on the run's clock; `parts` are the steps inside it."""

    kind: str
    start: float
    end: float
    args: dict[str, Any] = field(default_factory=dict)
    parts: list[Span] = field(default_factory=list)


@dataclass(slots=True)
class Story:
    """One request: its spans in order, disjoint, and what happened to it at one moment each."""

    info: RequestInfo
    spans: list[Span] = field(default_factory=list)
    moments: list[Event] = field(default_factory=list)
    state: str = "unborn"
    since: float = 0.0  # the end of what is known so far
    output: int = 0


def stories(trace: RunTrace, parts: bool = True) -> dict[int, Story]:
    """Every request of the trace by id. Without `parts` spans do not list their steps."""
    teller = _Teller(trace, parts)
    for entry in trace.entries():
        if parts or entry.repeat < 4:
            for step in entry.steps():
                teller.take(step)
        else:  # its first step may compute a prompt of one token; between its second and its last nothing happens
            teller.take(entry.single(0))
            teller.take(entry.single(1))
            teller.skip(entry)
            teller.take(entry.single(entry.repeat - 1))
    teller.events(trace.late_events)
    return teller.close()


class _Teller:
    """Walks a trace once. Steps of several streams may overlap in time; their requests are disjoint."""

    def __init__(self, trace: RunTrace, parts: bool):
        self.stories = {info.id: Story(info) for info in trace.requests.values()}
        self.parts = parts
        times = sorted(span for entry in trace.entries() for span in _spans(entry))
        self.starts, self.ends = [start for start, _ in times], [end for _, end in times]

    def take(self, step: StepTrace) -> None:
        before = [e for e in step.events if e.time <= step.start and e.kind not in AFTER_THE_STEP]
        self.events(before)
        for row in step.rows:
            self._row(self.stories[row.request], row, step)
        self.events(event for event in step.events if event not in before)

    def skip(self, entry: StepTrace) -> None:
        """The steps of a stretch between its second, which is taken, and its last, which `take` gets next."""
        steps, until = entry.repeat - 3, entry.stretch.ends[-2]
        for row in entry.rows:
            story = self.stories[row.request]
            span = story.spans[-1]
            span.end = story.since = until
            for name, value in (("tokens", row.num_tokens), ("padding", row.padding), ("steps", 1)):
                span.args[name] += steps * value
            story.output += steps * row.sampled

    def events(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.request in self.stories:
                self._event(self.stories[event.request], event)

    def close(self) -> dict[int, Story]:
        """What still waits when the run ends waits until then."""
        last = max(self.ends, default=0.0)
        for story in self.stories.values():
            self._wait_until(story, last)
        return self.stories

    def _event(self, story: Story, event: Event) -> None:
        if event.kind == "arrived":
            story.state, story.since = "waiting", story.info.arrival_time
            story.moments.append(event._replace(time=story.info.arrival_time))
            return
        if event.kind == "delivered":
            if story.state == "finished":
                self._add(story, Span("delivery", story.since, event.time, {"tokens": event.value}))
        else:
            self._wait_until(story, event.time)
            story.state = {"admitted": "running"}.get(event.kind, event.kind)
            if event.kind == "admitted" and story.spans:
                story.spans[-1].args |= {"cached": event.value}
        story.since = max(story.since, event.time)
        story.moments.append(event)

    def _wait_until(self, story: Story, time: float) -> None:
        if story.state == "waiting":
            self._add(story, Span("queueing", story.since, time, {"prompt tokens": story.info.num_prompt}))
        elif story.state == "preempted":
            self._add(story, Span("preempted", story.since, time, {"dropped tokens": story.moments[-1].value}))
        elif story.state == "running" and (missed := self._missed(story.since, time)):
            self._add(story, Span("stalled", story.since, time, {"steps without it": missed}))

    def _missed(self, since: float, until: float) -> int:
        """Whole steps between two times."""
        place, missed = bisect_left(self.starts, since), 0
        while place < len(self.starts) and self.starts[place] < until:
            missed += self.ends[place] <= until and self.ends[place] > self.starts[place]
            place += 1
        return missed

    def _row(self, story: Story, row: RowTrace, step: StepTrace) -> None:
        decodes = row.num_tokens == 1 and row.start >= story.info.num_prompt
        kind = WASTED if row.num_tokens == 0 else "decode" if decodes else "prefill"
        if story.state == "running":
            self._wait_until(story, step.start)
        last = story.spans[-1] if story.spans else None
        if last is None or last.kind != kind:
            last = self._add(story, Span(kind, step.start, step.end, {"tokens": 0, "padding": 0, "steps": 0}), True)
        last.end = step.end
        for name, value in (("tokens", row.num_tokens), ("padding", row.padding), ("steps", 1)):
            last.args[name] += value
        if self.parts:
            args = {"step": step.index, "first position": row.start, "tokens": row.num_tokens, "padding": row.padding}
            last.parts.append(Span(f"step {step.index}", step.start, step.end, args))
        story.since = max(story.since, step.end)
        if row.sampled:
            story.output += 1
            if story.output == 1:
                story.moments.append(Event(step.end, "first token", row.request, row.token or 0))

    def _add(self, story: Story, span: Span, empty: bool = False) -> Span:
        if span.end > span.start or empty:
            story.spans.append(span)
            story.since = max(story.since, span.end)
        return span


def _spans(entry: StepTrace) -> Iterator[tuple[float, float]]:
    """Start and end of the steps of an entry."""
    start = entry.start
    for end in (entry.end,) if entry.stretch is None else entry.stretch.ends:
        yield start, end
        start = end
