"""Turns StepTraces into what a screen needs: coloured bars per request, counters over time, latencies so far.

One feed per policy. The driving thread calls `take`; any thread may call `snapshot` (everything in view) and
`drain` (what changed since the last call). Memory is bounded: old requests and steps leave, series are thinned.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from lab.live.rows import Bar, RowView, rounded
from lab.live.sample import Sample
from lab.live.series import Series, Usage
from lab.live.story import SENT_IDS
from lab.live.style import CODE
from lab.plan import StepPlan
from lab.trace import Event, RequestInfo, RowTrace, StepTrace

KEPT_REQUESTS, KEPT_STEPS, SENT_STEPS = 400, 4000, 240
QUEUE, PREFILL, DECODE, WASTED, PREEMPTED, HELD = (
    CODE[name] for name in ("queue", "prefill", "decode", "wasted", "preempted", "held")
)


class Feed:
    """What one policy has done so far."""

    def __init__(self, name: str, kept: int = KEPT_REQUESTS):
        self.name, self.kept, self.lock = name, kept, threading.Lock()
        self.rows: dict[int, RowView] = {}
        self.series = Series()
        self.work = {"prefill": 0, "decode": 0, "padding": 0, "wasted": 0, "recomputed": 0}
        self.ttft, self.itl = Sample(), Sample()
        self.tokens = self.finished = self.arrived = self.steps = self.row_count = self.preemptions = 0
        self.first_arrival: float | None = None
        self.last_end = self.busy = self.flops = 0.0
        self.recent: deque[list[float]] = deque(maxlen=KEPT_STEPS)
        self.marks: list[tuple[float, str]] = []
        self.usage = Usage()
        self.flight: dict[str, Any] | None = None  # the step under way
        self._known: set[int] = set()
        self._dirty: set[int] = set()
        self._new_steps: list[list[float]] = []
        self._sent = -1  # version of the latencies on the other side

    # -- driving thread ------------------------------------------------------------------------------------
    def begin(self, plan: StepPlan, start: float) -> None:
        """A step is under way; until it is booked its rows are shown as a promise."""
        rows = []
        for row in plan.rows:
            decode = row.num_tokens == 1 and row.start >= row.request.num_prompt
            rows.append([row.request.id, WASTED if not row.num_tokens else DECODE if decode else PREFILL])
        self.flight = {"start": rounded(start), "rows": rows}

    def take(self, step: StepTrace, infos: dict[int, RequestInfo], batch_delivery: bool, flops: float = 0.0) -> None:
        """Book one step."""
        self.flight = None
        with self.lock:
            self._take_events([event for event in step.events if event.time <= step.start], infos)
            kinds = [0] * 4
            in_step = {row.request for row in step.rows}
            for row in step.rows:
                kinds[self._take_row(row, step, batch_delivery)] += 1
            for view in self.rows.values():
                if view.state == "running" and view.info.id not in in_step:
                    self._note(view, Bar(HELD, view.since, step.end))
                    view.since = step.end
            self._take_events([event for event in step.events if event.time > step.start], infos)
            self._count(step, kinds, flops)
            self._forget()

    def arrive(self, info: RequestInfo) -> None:
        """A request is in the queue; the step that records its arrival may be long in coming."""
        with self.lock:
            self._arrive(info)

    def take_events(self, events: list[Event], infos: dict[int, RequestInfo]) -> None:
        """Book what happened outside a step."""
        with self.lock:
            self._take_events(events, infos)

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
                self.itl.add(step.end - view.last)
            view.last = step.end
            if view.first is None and not batch_delivery:
                self._first_token(view, step.end)
        return kind

    def _note(self, view: RowView, bar: Bar) -> None:
        view.add(bar)
        self._dirty.add(view.info.id)

    def _first_token(self, view: RowView, time: float) -> None:
        view.first = time
        self.ttft.add(time - view.info.arrival_time)

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
            view = self.rows.get(event.request)
            self.finished += event.kind == "finished"
            self.preemptions += event.kind == "preempted"
            if view is not None:
                self._change(view, event)

    def _arrive(self, info: RequestInfo) -> None:
        if info.id in self._known:
            return
        self._known.add(info.id)
        self.arrived += 1
        if self.first_arrival is None:
            self.first_arrival = info.arrival_time
        self.rows[info.id] = RowView(info, since=info.arrival_time, sent_by_hand=SENT_IDS <= info.id < 1 << 32)
        self._dirty.add(info.id)

    def _change(self, view: RowView, event: Event) -> None:
        waits = {"waiting": QUEUE, "preempted": PREEMPTED}
        if view.state in waits and event.kind != "delivered":
            self._note(view, Bar(waits[view.state], view.since, event.time))
        if event.kind == "delivered" and view.first is None:
            self._first_token(view, event.time)
        if event.kind == "aborted" and view.first is not None:
            self.ttft.remove(view.first - view.info.arrival_time)
        view.state, view.since = {"admitted": "running"}.get(event.kind, event.kind), event.time
        self._dirty.add(view.info.id)

    def _count(self, step: StepTrace, kinds: list[int], flops: float) -> None:
        self.steps += 1
        self.row_count += len(step.rows) - kinds[WASTED]
        self.work["recomputed"] += step.recomputed
        self.tokens += step.sampled
        self.busy += step.end - step.start
        self.flops += flops
        self.last_end = step.end
        padded = step.padded
        self.series.add(step.start, step.end, step.sampled, step.running, step.waiting, kinds[1:4])
        values = [step.index, round(step.start, 4), round(step.end, 4), *kinds[1:4], step.computed]
        record = [*values, padded, step.sampled, step.running, step.waiting, step.used, step.free, step.cached]
        self.recent.append(record)
        self._new_steps.append(record)

    def _forget(self) -> None:
        """Requests that ended long ago leave, the oldest first."""
        for request in list(self.rows)[: max(0, len(self.rows) - self.kept)]:
            if self.rows[request].state not in ("waiting", "running", "preempted"):
                del self.rows[request]
                self._dirty.discard(request)

    # -- any thread ----------------------------------------------------------------------------------------
    def numbers(self) -> dict[str, float | None]:
        """The metrics of `lab.metrics.Report` so far, under the same names."""
        span = 0.0 if self.first_arrival is None else self.last_end - self.first_arrival
        total = sum(self.work[kind] for kind in ("prefill", "decode", "padding", "wasted"))
        waste = self.work["padding"] + self.work["wasted"]
        return {
            "output_tokens_per_s": self.tokens / span if span > 0 else None,
            "ttft_p50": self.ttft.quantile(0.5),
            "ttft_p95": self.ttft.quantile(0.95),
            "itl_p95": self.itl.quantile(0.95),
            "finished": self.finished,
            "arrived": self.arrived,
            "waste": waste / total if total else None,
            "mean_batch": self.row_count / self.steps if self.steps else None,
            "utilisation": min(1.0, self.busy / span) if span > 0 else None,
            "preemptions": self.preemptions,
            "flops_per_s": self.flops / self.busy if self.flops and self.busy else None,
            "steps": self.steps,
            "span": span,
        }

    def snapshot(self, now: float) -> dict[str, Any]:
        """All that is in view; changes nothing."""
        with self.lock:
            rows = [view.wire(whole=True) for view in self.rows.values()]
            return self._message(now, rows, list(self.recent), True)

    def drain(self, now: float) -> dict[str, Any] | None:
        """What changed since the last call, None when nothing did."""
        with self.lock:
            if not (self._dirty or self._new_steps or self.usage.fresh):
                return None
            views = [self.rows[request] for request in sorted(self._dirty) if request in self.rows]
            rows = [view.wire(whole=False) for view in views]
            for view in views:
                view.fresh = len(view.bars)
            steps, self._new_steps = self._new_steps[-SENT_STEPS:], []
            self._dirty = set()
            message = self._message(now, rows, steps, False)
            self.series.sent()
            self.usage.sent()
            return message

    def _message(self, now: float, rows: list, steps: list, whole: bool) -> dict[str, Any]:
        message = {"now": rounded(now), "rows": rows, "steps": steps, "work": dict(self.work)}
        message |= {"series": self.series.wire(whole), "usage": self.usage.wire(whole)}
        message |= {"numbers": self.numbers(), "marks": [[rounded(time), text] for time, text in self.marks]}
        if whole or self._sent != self.ttft.version:
            message["ttft"], message["itl"] = self.ttft.curve(), self.itl.curve()
            self._sent = self._sent if whole else self.ttft.version
        return message
