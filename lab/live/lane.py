"""One policy of a session: its engine, its clock, its place in the story, and the feed that shows it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lab import axes as axis_specs
from lab.clock import PATIENCE, never_starts
from lab.engine import Engine
from lab.errors import BadPolicy
from lab.live.feed import Feed
from lab.live.pace import MeasuredClock, PacedClock
from lab.live.story import SENT_IDS, Reader, Story
from lab.live.style import QUANTITIES
from lab.peaks import Peaks
from lab.request import SamplingParams
from lab.trace import RequestInfo, RunTrace, StepTrace

if TYPE_CHECKING:
    from lab.live.controls import Controls

LIMITS = ("max_batch", "max_running")


def limit_of(policy: Any) -> int | None:
    """How many requests a batching policy lets into a batch, None when it has no such limit."""
    return next((getattr(policy, name) for name in LIMITS if hasattr(policy, name)), None)


def with_limit(policy: Any, limit: int) -> Any:
    """The same batching policy with another batch size. Raises BadPolicy when it has none."""
    names = [name for name in LIMITS if hasattr(policy, name)]
    if not names:
        raise BadPolicy(f"{policy.name} batching has no batch size to change")
    changed = copy(policy)
    setattr(changed, names[0], limit)
    return changed


class Lane:
    """Drives one engine through the story; `tick` is one turn of the loop, as in `lab.clock.Driver`."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        clock: MeasuredClock | PacedClock,
        story: Story,
        slo: dict[str, float] | None = None,
    ):
        self.name, self.engine, self.clock, self.slo = name, engine, clock, slo or {}
        self.feed = Feed(name, slo=slo)
        self.trace: RunTrace = engine.trace
        peaks = Peaks.of(self.trace.meta)
        self.feed.peaks = None if peaks is None else asdict(peaks)
        self.reader = Reader(story)
        self.lock = threading.Lock()  # held while the trace changes
        self.done = False
        self.refusals: deque[str] = deque()  # why prompts sent by hand will never run here
        self._stuck = 0

    def now(self) -> float:
        """Seconds on this lane's clock."""
        return self.clock.now()

    def tick(self, halt: threading.Event, jump: bool = False) -> StepTrace | None:
        """Carry out one step, or wait a little; with `jump` go to the next event at once. Sets `done` at the end."""
        now = self.clock.now()
        with self.lock:
            fresh = self.reader.due(now)
            for request in fresh:
                self.engine.submit(request)
            upcoming = self.reader.next_time
            self.engine.more_expected = upcoming is not None
            flight = self.engine.begin(now)
        for request in fresh:
            self.feed.arrive(self.trace.requests[request.id])
            if request.error is not None and request.id >= SENT_IDS:
                self.refusals.append(str(request.error))
        if flight is not None:
            self._stuck = 0
            self.feed.begin(flight.plan, now)
            self.feed.film.peek(self.engine, len(self.trace))
            self.clock.elapse(self.engine.execute(flight), now, halt)
            return self._commit(flight)
        times = [time for time in (upcoming, self.engine.wake_at) if time is not None]
        if times and jump:
            self.clock.skip_to(min(times))
        elif times:
            self.clock.wait_towards(min(times), self.engine.wake)
        elif self.engine.idle:
            self.finish()
        else:
            self._give_up_if_stuck()
        return None

    def show_arrivals(self) -> None:
        """Let the queue grow on the screen while a long step is under way. Any thread."""
        if self.done:
            return
        for request in self.reader.peek(self.clock.now()):
            sizes = (request.num_prompt, request.sampling.max_tokens)
            self.feed.arrive(RequestInfo(request.id, request.arrival_time, *sizes))

    def _commit(self, flight: Any) -> StepTrace:
        with self.lock:
            step = self.engine.commit(flight, self.clock.now())
        batch = self.engine.scheduler.axes.delivery == "batch"
        for single in step.steps():
            self.feed.take(single, self.trace.requests, batch)
        self.feed.film.take(self.engine, len(self.trace) - 1)
        return step

    def picture(self) -> None:
        """Have the block map be that of the last step. Driving thread."""
        latest, last = self.feed.film.latest, len(self.trace) - 1
        if latest is None or latest.index != last or latest.under_way:
            self.feed.film.take(self.engine, last, whatever_it_costs=True)

    def _give_up_if_stuck(self) -> None:
        self._stuck += 1
        if self._stuck > PATIENCE:
            raise never_starts(self.engine)

    def finish(self) -> None:
        """No more steps: late events go to the trace, and the memory of keys and values is let go."""
        if self.done:
            return
        self.done = True
        with self.lock:
            late = len(self.trace.late_events)
            self.engine.flush()
        self.feed.take_events(self.trace.late_events[late:], self.trace.requests)
        self.feed.close()
        self.feed.film.take(self.engine, len(self.trace) - 1, whatever_it_costs=True)
        self.clock.freeze()
        self.engine.runner = None

    # -- changes while it runs; driving thread ---------------------------------------------------------------
    def change(self, numbers: dict[str, float], axes: dict[str, Any], controls: Controls) -> None:
        """Checked values of `Session.set`: those of sliders, and axes."""
        if controls.load.name in numbers:
            rate = controls.rate()
            if self.reader.story.set_rate(self.now(), rate):
                self.note(controls.load.name, numbers[controls.load.name])
        if "max_batch" in numbers:
            self.set_limit(int(numbers["max_batch"]))
        if "speed" in numbers:
            self.clock.speed = numbers["speed"]
        if axes:
            self.set_axes(axes)

    def send(self, prompt: Sequence[int] | int | None, long_tokens: int, sampling: SamplingParams) -> None:
        """A prompt arrives now: ids, a length, or without either the long one."""
        story = self.reader.story
        ids = story.long_prompt(long_tokens if prompt is None else prompt) if isinstance(prompt, int | None) else prompt
        story.send(self.now(), ids, sampling)
        self.note("sent", float(ids if isinstance(ids, int) else len(ids)))

    def set_limit(self, limit: int) -> None:
        """Change the batch size from the next step on."""
        policy = self.engine.scheduler.axes.batching
        if limit_of(policy) not in (None, limit):
            self.engine.reconfigure(batching=with_limit(policy, limit))
            self.note("max_batch", limit)

    def set_axes(self, axes: dict[str, Any]) -> None:
        """Change policies from the next step on, to those of `lab.live.asked.axes_of`."""
        self.engine.reconfigure(**axes)
        if "batching" in axes:
            self.note("batching", axis_specs.describe(axes["batching"]))

    def note(self, what: str, value: Any) -> None:
        """Record something that is no axis: a new load, a prompt sent by hand."""
        time = self.clock.now()
        self.trace.meta.setdefault("live", []).append({"time": time, "what": what, "value": value})
        label, unit = QUANTITIES[what].label, QUANTITIES[what].unit
        self.feed.mark(time, f"{label} → {value:.3g} {unit}" if isinstance(value, float) else f"{label} → {value}")
