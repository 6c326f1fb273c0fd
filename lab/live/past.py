"""Looking back: steps exactly as the RunTrace has them, the block map of then, the requests around, and why one was
slow.

Any thread may ask while the run goes on: a RunTrace only grows, and what a step needs is stored before the step
counts. Answers are bounded whatever the length of the run.
"""

from __future__ import annotations

from typing import Any

from lab.live import blocks
from lab.live.feed import Feed
from lab.live.lane import Lane
from lab.live.split import company, time_split
from lab.trace import RequestInfo, RunTrace, StepTrace

NEAR = 16  # steps sent before and after the one asked for
ROWS = 4000  # most rows in one answer
AROUND = 240  # steps drawn around it


def record(step: StepTrace, infos: dict[int, RequestInfo]) -> dict[str, Any]:
    """All of a StepTrace, and its sums, ready for JSON; nothing is rounded.

    Rows are [request, start, tokens, padding, sampled, length of its prompt].
    """
    names = ("index", "start", "end", "attention", "waiting", "running", "free", "used", "cached", "recomputed")
    sums = ("slots", "resident", "flops", "bytes", "computed", "padded", "sampled", "carried")
    found = {name: getattr(step, name) for name in names + sums}
    return (
        found
        | {"rows": [[*row[:5], infos[row.request].num_prompt] for row in step.rows]}
        | {"events": [list(event) for event in step.events]}
    )


def look(lane: Lane, index: int, around: bool = False) -> dict[str, Any] | None:
    """The step at `index` (clipped to what has happened) and its neighbours, and the block map taken last before it
    ended or with it. `around`: also the requests at that time, for a page that no longer has them. None before
    the first step."""
    trace, count = lane.trace, len(lane.trace)
    if not count:
        return None
    index = min(max(0, int(index)), count - 1)
    steps, rows = [record(trace[index], trace.requests)], 0
    for place in _outwards(index, count):
        rows += len(steps[-1]["rows"])
        if rows > ROWS:
            break
        steps.append(record(trace[place], trace.requests))
    steps.sort(key=lambda step: step["index"])
    frame = lane.feed.film.at(index)
    answer = {"index": index, "count": count, "steps": steps, "blocks": frame and blocks.wire(frame)}
    return answer | ({"view": view(trace, index, lane.trace.meta)} if around else {})


def _outwards(index: int, count: int) -> list[int]:
    """Places beside `index`, the nearest first."""
    beside = [place for away in range(1, NEAR + 1) for place in (index + away, index - away)]
    return [place for place in beside if 0 <= place < count]


def view(trace: RunTrace, index: int, meta: dict[str, Any]) -> dict[str, Any]:
    """Requests and steps around a step, as a feed sends them: bars begin and end with the window."""
    first = max(0, min(index - AROUND // 2, len(trace) - AROUND))
    last = min(len(trace), first + AROUND)
    feed = Feed("past")
    _seed(feed, trace, first)
    batch = meta.get("axes", {}).get("delivery") == "batch"
    for place in range(first, last):
        step = trace[place]
        for row in step.rows:
            shown = feed.rows.get(row.request)
            if shown is not None and shown.first is None and row.start >= shown.info.num_prompt and not shown.output:
                shown.first = trace[first].start  # it had its first token before this window
        feed.take(step, trace.requests, batch)
    rows = [shown.wire(whole=True) for shown in feed.rows.values()]
    return {"rows": rows, "steps": list(feed.recent), "from": trace[first].start, "to": trace[last - 1].end}


def _seed(feed: Feed, trace: RunTrace, first: int) -> None:
    """Who waited and who ran when step `first` began."""
    start, own = trace[first].start, set(trace[first].events)
    states = {}
    for event in trace.events():
        if event.time <= start and event.request >= 0 and event not in own:
            states[event.request] = event.kind, event.time
    for request, (kind, time) in states.items():
        state = {"arrived": "waiting", "admitted": "running", "preempted": "preempted"}.get(kind)
        if state is not None:
            feed.put(trace.requests[request], state, start if state == "running" else time)


def why(lane: Lane, request: int) -> dict[str, Any]:
    """Where the request's time went. Raises BadRequest for an unknown one."""
    parts = time_split(lane.trace, request)
    info = lane.trace.requests[request]
    return {"parts": parts, "total": sum(parts.values()), "company": company(lane.trace, request)} | {
        "ended": info.finish_reason
    }
