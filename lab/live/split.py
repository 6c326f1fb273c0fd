"""Why a request took as long as it did: its end-to-end time, split into parts that sum to it.

queueing    arrival until it is let in for the first time
prefill     steps that computed prompt tokens of it
decode      steps that computed one token after its prompt
stall       let in, but not in the step under way (others' prompts, say), or between two steps
preemption  waiting to be let in again, and steps that compute again what it had lost
delivery    its last token is computed, but the batch that holds it back has not ended
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from lab.errors import BadRequest
from lab.trace import Event, RowTrace, RunTrace, StepTrace

PARTS = ("queueing", "prefill", "decode", "stall", "preemption", "delivery")
_NEXT = {"admitted": "running", "preempted": "preemption", "finished": "delivery"}
_LAST = ("aborted", "refused", "delivered")


def time_split(trace: RunTrace, request: int) -> dict[str, float]:
    """Seconds per part of PARTS. They sum to the request's end-to-end time (`RequestTimes.e2e`).

    For one that has not ended they sum to the time from its arrival to the end of the last step. A request that is
    computed beside others' prompts decodes in longer steps: that is decode, see `company`. Costs time in proportion
    to the steps in which it ran. Raises BadRequest for an unknown id.
    """
    parts = dict.fromkeys(PARTS, 0.0)
    walk = _Walk(trace, _info(trace, request).arrival_time)
    state = "queueing"
    for event in _own(trace, request):
        if event.kind == "delivered" and state != "delivery":
            continue  # the rest comes token by token
        walk.pass_to(event.time, state, request, parts)
        state = _NEXT.get(event.kind, "over")
        if event.kind in _LAST:
            break
    if state in ("queueing", "running", "preemption") and len(trace):
        walk.pass_to(trace[-1].end, state, request, parts)
    return parts


def company(trace: RunTrace, request: int) -> dict[str, float]:
    """Its decode steps, alone with other decodes and beside others' prompts: how many, and their mean seconds.

    {"plain", "plain_s", "beside", "beside_s"}; the means are 0 where there were none.
    """
    arrival, spent = _info(trace, request).arrival_time, {"plain": [0, 0.0], "beside": [0, 0.0]}
    for start, end in _running(trace, request, arrival):
        for step, row in _steps_of(trace, request, start, end):
            if row is not None and _is_decode(trace, row):
                entry = spent["beside" if any(not _is_decode(trace, r) for r in step.rows if r.num_tokens) else "plain"]
                entry[0], entry[1] = entry[0] + 1, entry[1] + step.end - step.start
    means = {f"{kind}_s": total / count if count else 0.0 for kind, (count, total) in spent.items()}
    return {kind: count for kind, (count, _) in spent.items()} | means


class _Walk:
    """Goes along a request's life; `at` is how far, `computed` the most tokens it ever had."""

    def __init__(self, trace: RunTrace, arrival: float):
        self.trace, self.at, self.computed = trace, arrival, 0

    def pass_to(self, time: float, state: str, request: int, parts: dict[str, float]) -> None:
        """Book the time up to `time`, which passes in `state`."""
        if state == "running":
            for step, row in _steps_of(self.trace, request, self.at, time):
                if row is not None:
                    self._book(max(self.at, step.start), "stall", parts)
                    self._book(step.end, self._kind(row), parts)
            state = "stall"
        self._book(time, state, parts)

    def _book(self, time: float, part: str, parts: dict[str, float]) -> None:
        if time > self.at:
            parts[part] += time - self.at
            self.at = time

    def _kind(self, row: RowTrace) -> str:
        again = row.start < self.computed
        self.computed = max(self.computed, row.start + row.num_tokens)
        return "preemption" if again else "decode" if _is_decode(self.trace, row) else "prefill"


def _info(trace: RunTrace, request: int):
    if request not in trace.requests:
        raise BadRequest(f"request {request} is not in this run of {len(trace.requests)} requests")
    return trace.requests[request]


def _own(trace: RunTrace, request: int) -> list[Event]:
    return [event for event in trace.events() if event.request == request and event.kind != "arrived"]


def _is_decode(trace: RunTrace, row: RowTrace) -> bool:
    return row.num_tokens == 1 and row.start >= trace.requests[row.request].num_prompt


def _running(trace: RunTrace, request: int, arrival: float) -> Iterator[tuple[float, float]]:
    """The stretches of time in which it was let in."""
    since: float | None = None
    for event in _own(trace, request):
        if event.kind == "admitted":
            since = event.time
        elif since is not None and event.kind in ("preempted", "finished", "aborted"):
            yield since, event.time
            since = None
    if since is not None and len(trace):
        yield since, trace[-1].end


def _steps_of(trace: RunTrace, request: int, start: float, end: float) -> Iterator[tuple[StepTrace, RowTrace | None]]:
    """Steps that end in (start, end], each with its row in it if it computed something. Steps end in their order."""
    index = bisect_right(range(len(trace)), start, key=lambda place: trace[place].end)
    while index < len(trace) and (step := trace[index]).end <= end:
        yield step, next((row for row in step.rows if row.request == request and row.num_tokens), None)
        index += 1
