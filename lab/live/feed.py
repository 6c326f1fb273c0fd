"""Turns StepTraces into what a screen needs: coloured bars per request, counters over time, latencies so far.

One feed per policy. The driving thread calls `take`; any thread may call `snapshot` (everything in view) and
`drain` (what changed since the last call). Memory is bounded: old requests and steps leave, series are thinned.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from lab.live import parcel
from lab.live.film import Film
from lab.live.limits import Limits
from lab.live.rows import Bar, RowView, rounded
from lab.live.series import Series, Usage
from lab.live.steps import History
from lab.live.story import SENT_IDS
from lab.live.style import CODE
from lab.plan import StepPlan
from lab.trace import Event, RequestInfo, RowTrace, StepTrace

KEPT_REQUESTS, KEPT_WAITING, KEPT_STEPS = 400, 200, 4000
QUEUE, PREFILL, DECODE, WASTED, PREEMPTED, HELD = (
    CODE[name] for name in ("queue", "prefill", "decode", "wasted", "preempted", "held")
)


class Feed:
    """What one policy has done so far."""

    def __init__(self, name: str, kept: int = KEPT_REQUESTS, slo: dict[str, float] | None = None):
        self.name, self.kept, self.lock = name, kept, threading.Lock()
        self.rows: dict[int, RowView] = {}
        self.series, self.usage, self.film, self.limits = Series(), Usage(), Film(), Limits(slo)
        self.peaks: dict[str, Any] | None = None  # {"flops", "bytes_per_s", "source"} where known
        self.work = {"prefill": 0, "decode": 0, "padding": 0, "wasted": 0, "recomputed": 0, "cached": 0}
        self.ttft, self.itl = self.limits.ttft, self.limits.itl
        self.tokens = self.finished = self.arrived = self.steps = self.row_count = self.preemptions = 0
        self.first_arrival: float | None = None
        self.last_end = self.busy = self.flops = self.bytes = 0.0
        self.recent = History(KEPT_STEPS)
        self.lost = {"refused": 0, "aborted": 0}
        self.reason = ""  # why the first one was refused
        self.marks: list[tuple[float, str]] = []
        self.flight: dict[str, Any] | None = None  # the step under way
        self.sent = parcel.Sent()
        self._known: set[int] = set()
        self._hidden: dict[int, RequestInfo] = {}  # wait too far back in the queue to be shown
        self._waiting: set[int] = set()
        self._running: set[int] = set()
        self._ended: deque[int] = deque()

    # -- driving thread ------------------------------------------------------------------------------------
    def begin(self, plan: StepPlan, start: float) -> None:
        """A step is under way; until it is booked its rows are shown as a promise."""
        rows = []
        for row in plan.rows:
            decode = row.num_tokens == 1 and row.start >= row.request.num_prompt
            rows.append([row.request.id, WASTED if not row.num_tokens else DECODE if decode else PREFILL])
        self.flight = {"start": rounded(start), "rows": rows}

    def take(self, step: StepTrace, infos: dict[int, RequestInfo], batch_delivery: bool) -> None:
        """Book one step."""
        self.flight = None
        with self.lock:
            self._take_events([event for event in step.events if event.time <= step.start], infos)
            kinds = [0] * 4
            in_step = {row.request for row in step.rows}
            for row in step.rows:
                kinds[self._take_row(row, step, batch_delivery)] += 1
            for request in self._running - in_step:
                view = self.rows[request]
                self._note(view, Bar(HELD, view.since, step.end))
                view.since = step.end
            self._take_events([event for event in step.events if event.time > step.start], infos)
            self._count(step, kinds)
            self._forget()

    def put(self, info: RequestInfo, state: str, since: float) -> None:
        """A request that has been in `state` for a while, before this feed began."""
        with self.lock:
            self._arrive(info)
            view = self.rows.get(info.id)
            if view is not None and state != "waiting":
                self._move(view, state, since)

    def arrive(self, info: RequestInfo) -> None:
        """A request is in the queue; the step that records its arrival may be long in coming."""
        with self.lock:
            self._arrive(info)

    def take_events(self, events: list[Event], infos: dict[int, RequestInfo]) -> None:
        """Book what happened outside a step."""
        with self.lock:
            self._take_events(events, infos)

    def close(self) -> None:
        """No step follows: those that ended and waited for the rest of their batch count as in `Report`."""
        with self.lock:
            for view in self.rows.values():
                if view.state == "finished" and not view.judged and view.began is not None:
                    self.limits.judge(view, view.since, view.began)

    def measure(self, time: float, readings: list[Any]) -> None:
        """Readings of the monitor."""
        with self.lock:
            self.usage.add(time, readings)

    def mark(self, time: float, text: str) -> None:
        """Something the person did, shown on the time axis."""
        with self.lock:
            self._mark(time, text)

    def _mark(self, time: float, text: str) -> None:
        """A slider that is dragged leaves one mark, not twenty."""
        what = text.partition(" → ")[0]
        if self.marks and self.marks[-1][1].startswith(what) and time - self.marks[-1][0] < 1.0:
            self.marks = self.marks[:-1]
        self.marks = [*self.marks[-49:], (time, text)]

    def _take_row(self, row: RowTrace, step: StepTrace, batch_delivery: bool) -> int:
        view = self.rows.get(row.request)
        if row.num_tokens == 0:
            kind = WASTED
            self.work["wasted"] += row.padding
        else:
            prompt = 0 if view is None else view.info.num_prompt
            kind = DECODE if row.num_tokens == 1 and row.start >= prompt else PREFILL
            self.work["decode" if kind == DECODE else "prefill"] += row.num_tokens
            self.work["padding"] += row.padding
        if view is None:  # left the screen long ago
            return kind
        self._note(view, Bar(kind, step.start, step.end, row.num_tokens, row.padding))
        view.since = step.end
        if row.sampled:
            view.output += 1
            if view.last is not None:
                self.limits.gap(view, step.end - view.last)
            view.last = step.end
            view.began = step.end if view.began is None else view.began
            if view.first is None and not batch_delivery:
                view.first = step.end
        return kind

    def _note(self, view: RowView, bar: Bar) -> None:
        view.add(bar)
        self.sent.dirty.add(view.info.id)

    def _take_events(self, events: list[Event], infos: dict[int, RequestInfo]) -> None:
        for event in events:
            if event.kind == "reconfigured":
                axis, _, value = event.note.partition("=")
                if axis not in ("batching", "attention", "delivery"):  # the lane has noted these
                    self._mark(event.time, f"{axis} → {value}")
                continue
            if event.kind == "arrived":
                self._arrive(infos[event.request])
                continue
            self.finished += event.kind == "finished"
            self.preemptions += event.kind == "preempted"
            if event.kind in self.lost:
                self.lost[event.kind] += 1
                self.reason = self.reason or event.note
            hidden = self._hidden.pop(event.request, None)
            if hidden is not None:
                self._show(hidden)
            view = self.rows.get(event.request)
            if view is not None:
                self._change(view, event)

    def _arrive(self, info: RequestInfo) -> None:
        if info.id in self._known:
            return
        self._known.add(info.id)
        self.arrived += 1
        if self.first_arrival is None:
            self.first_arrival = info.arrival_time
        if len(self._waiting) < max(KEPT_WAITING, self.kept // 2):
            self._show(info)
        else:
            self._hidden[info.id] = info

    def _show(self, info: RequestInfo) -> None:
        self.rows[info.id] = RowView(info, since=info.arrival_time, sent_by_hand=SENT_IDS <= info.id < 1 << 32)
        self._waiting.add(info.id)
        self.sent.dirty.add(info.id)

    def _change(self, view: RowView, event: Event) -> None:
        waits = {"waiting": QUEUE, "preempted": PREEMPTED}
        if view.state in waits and event.kind != "delivered":
            self._note(view, Bar(waits[view.state], view.since, event.time))
        if event.kind == "admitted":
            self.work["cached"] += event.value
            view.cached, view.found = view.cached + event.value, event.value
        if event.kind == "delivered" and view.first is None:
            view.first = event.time
        over = event.kind == "finished" and view.first is not None
        if over or (event.kind == "delivered" and view.state == "finished" and not view.judged):
            self.limits.judge(view, event.time)
        self._move(view, {"admitted": "running"}.get(event.kind, event.kind), event.time)

    def _move(self, view: RowView, state: str, time: float) -> None:
        request = view.info.id
        view.state, view.since = state, time
        (self._running.add if state == "running" else self._running.discard)(request)
        if state not in ("waiting", "preempted"):
            self._waiting.discard(request)
        if state in ("finished", "aborted", "refused"):
            self._ended.append(request)
        self.sent.dirty.add(request)

    def _count(self, step: StepTrace, kinds: list[int]) -> None:
        self.steps += 1
        self.row_count += len(step.rows) - kinds[WASTED]
        self.work["recomputed"] += step.recomputed
        self.tokens += step.sampled
        self.busy += step.end - step.start
        self.flops, self.bytes = self.flops + step.flops, self.bytes + step.bytes
        self.last_end = step.end
        padded = step.padded
        self.series.add(step, kinds[1:4])
        values = [step.index, round(step.start, 4), round(step.end, 4), *kinds[1:4], step.computed]
        record = [*values, padded, step.sampled, step.running, step.waiting, step.used, step.free, step.cached]
        self.recent.append(record)
        self.sent.steps.append(record)

    def _forget(self) -> None:
        """Requests that ended long ago leave, the oldest first."""
        while len(self.rows) > self.kept and self._ended:
            request = self._ended.popleft()
            if self.rows.pop(request, None) is not None:
                self.sent.gone(request)

    # -- any thread ----------------------------------------------------------------------------------------
    def numbers(self) -> dict[str, Any]:
        """The metrics of `lab.metrics.Report` so far, under the same names."""
        return parcel.numbers(self)

    def snapshot(self, now: float) -> dict[str, Any]:
        """All that is in view; changes nothing."""
        with self.lock:
            return parcel.everything(self, now)

    def drain(self, now: float) -> dict[str, Any] | None:
        """What changed since the last call, None when nothing did."""
        with self.lock:
            return parcel.news(self, now)
