"""Time belongs to the driver: it goes to the earliest of step end, arrival and timer, by waiting or by jumping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from math import inf
from typing import Protocol

from lab.engine import Engine
from lab.errors import BadPolicy
from lab.plan import StepResult
from lab.request import Request
from lab.trace import RunTrace, StepTrace

PATIENCE = 1000  # turns


class Clock(Protocol):
    """Seconds since the run began."""

    name: str

    def now(self) -> float:
        """Seconds since the run began."""
        ...

    def elapse(self, result: StepResult, start: float) -> None:
        """A step that began at `start` has been carried out; move to its end."""
        ...

    def wait_until(self, when: float, wake: threading.Event) -> None:
        """Move to `when`, or less far if `wake` is set meanwhile."""
        ...


class VirtualClock:
    """Jumps. Real runners may drive it too: their measured seconds pass, the waiting in between does not."""

    name = "virtual"

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        """The virtual time."""
        return self._now

    def elapse(self, result: StepResult, start: float) -> None:
        """Add the step's seconds."""
        self._now = start + result.seconds

    def wait_until(self, when: float, wake: threading.Event) -> None:
        """Jump forward; never back."""
        self._now = max(self._now, when)


class WallClock:
    """Real seconds. A step that was only priced is waited for, so that a simulation can be watched."""

    name = "wall"

    def __init__(self) -> None:
        self._zero = time.perf_counter()

    def now(self) -> float:
        """Seconds since this clock was made."""
        return time.perf_counter() - self._zero

    def elapse(self, result: StepResult, start: float) -> None:
        """A computed step has taken its time already."""
        if result.modelled:
            time.sleep(max(0.0, start + result.seconds - self.now()))

    def wait_until(self, when: float, wake: threading.Event) -> None:
        """Sleep until `when` unless somebody submits, aborts or reconfigures."""
        delay = when - self.now()
        if delay > 0:
            wake.wait(delay)


def make_clock(name: str) -> Clock:
    """ "wall" or "virtual"."""
    clocks: dict[str, Callable[[], Clock]] = {"wall": WallClock, "virtual": VirtualClock}
    if name not in clocks:
        raise BadPolicy(f"clock {name!r} is not known; there are {', '.join(clocks)}")
    return clocks[name]()


class Driver:
    """Feeds arrivals to one engine and moves the clock. `tick` is one turn of the loop, `run` all of them.

    With `leaps`, on the virtual clock, a runner that has `stretches` carries out decode steps that only repeat at once:
    one turn and one StepTrace, with the same counts and times as its single steps would have had.
    """

    def __init__(self, engine: Engine, arrivals: Iterable[Request], clock: Clock, leaps: bool = False):
        self.engine, self.clock = engine, clock
        self._leaps = leaps and clock.name == "virtual" and getattr(engine.runner, "stretches", False)
        self._arrivals = sorted(arrivals, key=lambda request: request.order, reverse=True)
        self.done = False

    def tick(self) -> StepTrace | None:
        """Carry out one step, or move to the next event; sets `done` when nothing is left to do."""
        now = self.clock.now()
        times = self._arrive(now)
        flight = self.engine.begin(now, until=min(times, default=inf) if self._leaps else None)
        if flight is not None:
            self.clock.elapse(self.engine.execute(flight), now)
            return self.engine.commit(flight, self.clock.now())
        times += [self.engine.wake_at] if self.engine.wake_at is not None else []
        if times:
            self.clock.wait_until(min(times), self.engine.wake)
        elif self.engine.idle:
            self.done = True
        return None

    def run(self) -> RunTrace:
        """Drive until every request has ended."""
        idle_turns, last = 0, -1.0
        while not self.done:
            moved = bool(self.tick()) or self.clock.now() > last
            idle_turns, last = 0 if moved else idle_turns + 1, self.clock.now()
            if idle_turns > PATIENCE:
                raise never_starts(self.engine)
        return self.engine.flush()

    def _arrive(self, now: float) -> list[float]:
        """Submit what has arrived by `now`; the time of the next arrival, if there is one."""
        while self._arrivals and self._arrivals[-1].arrival_time <= now:
            self.engine.submit(self._arrivals.pop())
        self.engine.more_expected = bool(self._arrivals)
        return [self._arrivals[-1].arrival_time] if self._arrivals else []


def never_starts(engine: Engine) -> BadPolicy:
    """What to raise after PATIENCE turns in which nothing happened and nothing could be waited for."""
    return BadPolicy(
        f"{len(engine.scheduler.waiting)} requests wait, nothing runs and no timer is set: "
        f"{engine.scheduler.axes.batching.name} batching never starts them"
    )
