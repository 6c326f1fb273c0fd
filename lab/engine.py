"""The engine joins a scheduler, a memory and a runner. It has no clock: the driver tells it the time.

    flight = engine.begin(now)      a planned step, or None and `engine.wake_at`
    engine.execute(flight)          the runner computes it (or prices it)
    engine.commit(flight, now)      tokens, blocks and finished requests become visible; returns the StepTrace

Several flights over disjoint requests may be open at once. Only the thread that drives the engine calls these;
`submit`, `abort` and `reconfigure` may be called from any thread and are read at the next `begin`.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from lab.errors import BadPolicy, BadRequest, EngineStopped, LabError, NeverFits
from lab.lanes import Lane
from lab.memory.protocol import Memory
from lab.numbers import whole
from lab.plan import Row, Runner, StepPlan, StepResult
from lab.request import Request
from lab.scheduler import Scheduler
from lab.trace import Event, RequestInfo, RowTrace, RunTrace, StepTrace, Stretch

CHANGEABLE = ("batching", "chunking", "ordering", "preemption", "attention", "delivery")


@dataclass(slots=True)
class Flight:
    """A step between begin and commit."""

    plan: StepPlan
    start: float
    events: list[Event]
    result: StepResult | None = None


class Engine:
    """Submitted requests go in, tokens come out, and `trace` says everything that happened."""

    def __init__(
        self,
        scheduler: Scheduler,
        memory: Memory,
        runner: Runner,
        eos_token_ids: frozenset[int] = frozenset(),
        max_context: int | None = None,
    ):
        self.scheduler, self.memory, self.runner = scheduler, memory, runner
        self.eos_token_ids, self.max_context = eos_token_ids, max_context
        self.requests: dict[int, Request] = {}
        self.trace = RunTrace()
        self.more_expected = True  # the driver says False once no further request can arrive
        self.wake_at: float | None = None
        self.wake = threading.Event()  # set by the inbox; interrupts a waiting clock
        self.check_every_step = False  # recount all books after each commit (tests, debugging)
        self._inbox: deque[tuple[str, Any]] = deque()
        self._events: list[Event] = []
        self._flights: list[Flight] = []
        self._aborts: set[int] = set()  # of requests in flight
        self._open = True
        self._ids: set[int] = set()
        self._ids_lock = threading.Lock()

    # -- any thread ----------------------------------------------------------------------------------------
    def submit(self, request: Request) -> None:
        """Hand in a request. Raises EngineStopped after `close`, BadRequest when its id is taken."""
        whole(request.id, "a request id of", 0, BadRequest)
        if request.id >= 1 << 32:
            raise BadRequest(f"a request id of {request.id}; ids from 2³² on are those of further samples")
        with self._ids_lock:
            if request.id in self._ids:
                raise BadRequest(f"request {request.id}: this id is taken by an earlier request")
            self._post("submit", request)
            self._ids.add(request.id)

    def abort(self, request_id: int) -> None:
        """Give up a request in whatever state it is; an unknown or finished one is left alone."""
        self._post("abort", request_id)

    def reconfigure(self, **axes: Any) -> None:
        """Change policies from the next step on; lower limits drain. Raises BadPolicy for what may not change.

        A new `batching` brings its own attention and delivery unless these are given too.
        """
        fixed = sorted(set(axes) - set(CHANGEABLE))
        if fixed:
            raise BadPolicy(f"{', '.join(fixed)} cannot change while an engine runs; {', '.join(CHANGEABLE)} can")
        for axis, policy in axes.items():
            if isinstance(policy, str) and axis not in ("attention", "delivery"):
                raise BadPolicy(f"{axis} {policy!r} is text; a running engine takes policy objects (lab.axes.parse)")
        if "batching" in axes:
            axes = {"attention": axes["batching"].attention, "delivery": axes["batching"].delivery} | axes
        replace(self.scheduler.axes, **axes)  # raises where the combination makes no sense
        self._post("axes", axes)

    def close(self) -> None:
        """Take no more requests; those already submitted are finished."""
        self._open = False
        self.wake.set()

    def _post(self, kind: str, value: Any) -> None:
        if not self._open and kind != "abort":
            raise EngineStopped(f"the engine is closed and takes no {kind}")
        self._inbox.append((kind, value))
        self.wake.set()

    # -- the driving thread --------------------------------------------------------------------------------
    @property
    def idle(self) -> bool:
        """True when nothing waits, runs or is in flight and the inbox is empty."""
        return not (self._inbox or self._flights or self.scheduler.running or self.scheduler.waiting)

    def begin(self, now: float, lane: Lane | None = None, until: float | None = None) -> Flight | None:
        """Read the inbox and plan a step over the requests not in flight (with a `lane`: over those it takes).

        `until` is for simulations: nothing can happen before that time, so a decode step that would only repeat may
        be planned as a stretch, up to the step that reaches it.
        """
        self._read_inbox(now)
        self._deliver_batch(now)  # an abort may have ended the batch
        stretches = until is not None and not self._flights and not self.check_every_step
        schedule = self.scheduler.schedule(now, self.more_expected, lane, stretches)
        for request, dropped in schedule.preempted:
            self._note(now, "preempted", request.id, dropped)
        for request, cached in schedule.admitted:
            request.num_cached += cached
            self._note(now, "admitted", request.id, cached)
        self.wake_at = schedule.wake_at
        if schedule.plan is None:
            return None
        if schedule.plan.repeat > 1 and until < inf:
            schedule.plan.until = until - now
        for row in schedule.plan.rows:
            row.request.in_flight = row.num_tokens > 0
        flight = Flight(schedule.plan, now, self._events)
        self._events = []
        self._flights.append(flight)
        return flight

    def execute(self, flight: Flight) -> StepResult:
        """Let the runner compute the plan. Touches neither queue nor books, so a worker thread may call it."""
        flight.result = self.runner.run(flight.plan)
        return flight.result

    def commit(self, flight: Flight, now: float) -> StepTrace:
        """Make the results visible, end what is finished, and record the step."""
        assert flight.result is not None, "execute comes before commit"
        self._flights.remove(flight)
        events, self._events = self._events, []
        recomputed = 0
        rows = []
        slots, resident = self._slots(flight.plan)
        stretch = self._stretch(flight)
        for row, token, margin in zip(flight.plan.rows, flight.result.tokens, flight.result.margins, strict=True):
            request = row.request.id
            samples = row.samples and request not in self._aborts
            if not samples:
                token = margin = None
            rows.append(RowTrace(request, row.start, row.num_tokens, row.padding, samples, token, margin))
            if row.num_tokens:
                if stretch is not None:
                    self._skip(row, stretch)
                recomputed += self._land(row, token, margin, now)
        self._deliver_batch(now)
        step = self._record(flight, now, rows, events)
        step.recomputed, step.slots, step.resident, step.stretch = recomputed, slots, resident, stretch
        self.trace.append(step)
        self.scheduler.observe(step)
        if self.check_every_step:
            self.check()
        return step

    def step(self, now: float) -> StepTrace | None:
        """begin, execute and commit at once, the commit at `now` plus the runner's seconds."""
        flight = self.begin(now)
        if flight is None:
            return None
        return self.commit(flight, now + self.execute(flight).seconds)

    def check(self) -> None:
        """Recount every block against every table; raises BlockError."""
        live = [request for request in self.requests.values() if request.status != "finished"]
        self.memory.check(live)
        counts = self.memory.counts()
        assert sum(counts) == self.memory.num_blocks, f"{counts} do not add up to {self.memory.num_blocks} blocks"

    # -- inside --------------------------------------------------------------------------------------------
    def _note(self, now: float, kind: str, request_id: int, value: int = 0, note: str = "") -> None:
        self._events.append(Event(now, kind, request_id, value, note))

    def _read_inbox(self, now: float) -> None:
        self.wake.clear()
        while self._inbox:
            kind, value = self._inbox.popleft()
            if kind == "submit":
                self._accept(value, now)
            elif kind == "abort":
                self._abort(value, now)
            else:
                self._reconfigure(value, now)

    def _register(self, request: Request) -> None:
        self.requests[request.id] = request
        self.trace.requests[request.id] = RequestInfo(
            request.id,
            request.arrival_time,
            request.num_prompt,
            request.sampling.max_tokens,
            request.priority,
            request.deadline,
        )
        self._note(request.arrival_time, "arrived", request.id)

    def _accept(self, request: Request, now: float) -> None:
        """Queue a request, or refuse it with the reason on it; the others are not touched."""
        self._register(request)
        try:
            if self.max_context is not None and request.max_total + 1 > self.max_context:
                raise NeverFits(request.id, request.max_total + 1, self.max_context, "tokens of context")
            if hasattr(self.runner, "check"):
                self.runner.check(request)
            self.scheduler.add(request, now)
        except LabError as error:
            request.error = error
            self._end(request, "refused", now, "refused", note=str(error))
            request.status = "finished"

    def _abort(self, request_id: int, now: float) -> None:
        request = self.requests.get(request_id)
        if request is None or request.status == "finished":
            return
        if request.in_flight:
            self._aborts.add(request_id)  # its blocks are in use until the step lands
            return
        self.scheduler.remove(request)
        self._end(request, "abort", now, "aborted")

    def _reconfigure(self, axes: dict[str, Any], now: float) -> None:
        for axis, policy in axes.items():
            if axis == "ordering":
                self.scheduler.reorder(policy, now)
            else:
                setattr(self.scheduler.axes, axis, policy)
            self._note(now, "reconfigured", -1, note=f"{axis}={getattr(policy, 'name', policy)}")
        if self.scheduler.axes.delivery == "token":
            for request in [*self.scheduler.carried, *self.scheduler.running]:
                self._deliver(request, now)  # what a batch held back until now

    def _land(self, row: Row, token: int | None, margin: float | None, now: float) -> int:
        """Book one row's computed tokens and its sample; returns how many tokens were computed again."""
        request = row.request
        request.in_flight = False
        end = row.start + row.num_tokens
        request.num_computed = end
        again = 0
        if row.start < request.high_water:
            again = min(end, request.high_water) - row.start
        if end > request.high_water:
            request.high_water = end
        self.memory.committed(request)
        if self._aborts and request.id in self._aborts:
            self._aborts.discard(request.id)
            self.scheduler.remove(request)
            self._end(request, "abort", now, "aborted")
        elif row.samples:
            if request.num_output == 0 and request.sampling.n > 1 and request.id < 1 << 32:
                self._fork(request, now)
            self._append(request, token, margin, now)
        return again

    def _stretch(self, flight: Flight) -> Stretch | None:
        """What the steps of a stretch have in common, taken before its last one lands."""
        result, scheduler = flight.result, self.scheduler
        if result.ends is None or len(result.ends) == 1:
            return None
        return Stretch(
            [flight.start + seconds for seconds in result.ends],
            len(scheduler.waiting),
            len(scheduler.running),
            *self.memory.counts(),
            growth=self.memory.block_size if self.memory.grows else 0,
            opening=len(flight.events),
        )

    def _skip(self, row: Row, stretch: Stretch) -> None:
        """Book all steps of a stretch but the last: tokens that were only priced, and the blocks they took."""
        request, steps = row.request, len(stretch.ends) - 1
        self.memory.grow(request, row.start + steps + 1)
        row.start += steps
        request.num_computed = row.start
        if request.first_token_time is None:
            request.first_token_time = stretch.ends[0]
        request.num_output += steps
        if self.scheduler.axes.delivery == "token":
            request.num_delivered += steps

    def _fork(self, parent: Request, now: float) -> None:
        """The prompt is computed: its other samples start from the same blocks."""
        for child in parent.samples():
            self._register(child)
            self.scheduler.fork(parent, child)
            child.high_water = child.num_computed
            child.num_cached = child.num_computed
            self._note(now, "admitted", child.id, child.num_computed)

    def _append(self, request: Request, token: int | None, margin: float | None, now: float) -> None:
        request.num_output += 1
        if token is not None:
            request.output.append(token)
        if margin is not None:
            request.margins.append(margin)
        if request.first_token_time is None:
            request.first_token_time = now
        request.last_token_time = now
        if self.scheduler.axes.delivery == "token":
            request.num_delivered += 1
        reason = self._stop_reason(request, token)
        if reason is not None:
            self.scheduler.finish(request)
            self._end(request, reason, now, "finished", request.num_output)

    def _stop_reason(self, request: Request, token: int | None) -> str | None:
        if token is not None:
            if token in request.sampling.stop_token_ids:
                return "stop"
            if token in self.eos_token_ids and not request.sampling.ignore_eos:
                return "stop"
        return "length" if request.num_output >= request.sampling.max_tokens else None

    def _end(self, request: Request, reason: str, now: float, kind: str, value: int = 0, note: str = "") -> None:
        request.finish_reason = reason
        info = self.trace.requests[request.id]
        info.finish_reason, info.error = reason, note or None
        self._note(now, kind, request.id, value, note)

    def _deliver_batch(self, now: float) -> None:
        """With delivery "batch" users get their tokens when the whole batch has ended."""
        ended = self.scheduler.end_of_batch()
        for request in ended:
            self._deliver(request, now)

    def _deliver(self, request: Request, now: float) -> None:
        """Hand over the tokens that were held back."""
        held_back = request.num_output - request.num_delivered
        if held_back:
            request.num_delivered = request.num_output
            self._note(now, "delivered", request.id, held_back)

    def _record(self, flight: Flight, now: float, rows: list[RowTrace], events: list[Event]) -> StepTrace:
        counts = self.memory.counts()
        step = StepTrace(
            index=len(self.trace),
            start=flight.start,
            end=now,
            attention=flight.plan.attention,
            rows=rows,
            events=flight.events + events + self._events,
            waiting=len(self.scheduler.waiting),
            running=len(self.scheduler.running),
            free=counts.free,
            used=counts.used,
            cached=counts.cached,
            flops=flight.result.flops,
            bytes=flight.result.bytes,
        )
        self._events = []
        return step

    def _slots(self, plan: StepPlan) -> tuple[int, int]:
        """Slots in used blocks while `plan` runs, and how many of them hold a token after it."""
        size = self.memory.block_size
        slots = self.memory.counts().used * size
        held = sum(len(request.block_table) for request in self.scheduler.running) * size
        filled = sum(request.num_computed for request in self.scheduler.running) + plan.num_tokens
        return slots, max(0, slots - (held - filled))

    def flush(self) -> RunTrace:
        """Events since the last step go to the end of the trace; call when driving has ended."""
        self.trace.late_events += self._events
        self._events = []
        return self.trace
