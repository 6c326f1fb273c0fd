"""Several steps of one engine in flight at once, each over the requests of its lane (see lanes.py).

LaneDriver     begins a step for every lane that has none, and commits each when the device says it has ended
SharedTime     a simulated device: what is in flight shares arithmetic and bandwidth (simulation/lanes.py)
ThreadDevice   a real one: every lane has a thread of its own, in the surroundings the model gives it (one core each on
               the CPU, a stream each on a GPU)
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import inf
from queue import SimpleQueue
from typing import Protocol

from lab.clock import Clock, Driver
from lab.engine import Engine, Flight
from lab.errors import BadPolicy
from lab.lanes import Lane
from lab.request import Request
from lab.trace import RunTrace, StepTrace


class Device(Protocol):
    """Carries flights out, one per lane at a time."""

    def start(self, lane: int, flight: Flight, now: float) -> None:
        """Put a flight in the air."""
        ...

    def wait(self, until: float) -> list[int]:
        """Let time pass until a flight ends, at most to `until` (or until the engine is woken); lanes that have ended.

        Raises what a flight raised.
        """
        ...

    def close(self) -> None:
        """Wait for what is in the air and let threads go."""
        ...


class LaneDriver(Driver):
    """Feeds arrivals to one engine and keeps all its lanes busy; `run` does it until every request has ended."""

    def __init__(
        self, engine: Engine, arrivals: Iterable[Request], clock: Clock, lanes: Sequence[Lane], device: Device
    ):
        if engine.scheduler.axes.batching.carries_finished and len(lanes) > 1:
            name = engine.scheduler.axes.batching.name
            raise BadPolicy(f"{len(lanes)} lanes with {name} batching: its batch is one rectangle and cannot be split")
        super().__init__(engine, arrivals, clock)
        self.lanes, self.device = list(lanes), device
        self._flights: dict[int, Flight] = {}

    def tick(self) -> list[StepTrace]:
        """Begin what can begin, then let time pass to the next event; the steps that ended there."""
        now = self.clock.now()
        times = self._arrive(now)
        for index, lane in enumerate(self.lanes):
            if index not in self._flights and not self._copying:
                flight = self.engine.begin(now, lane)
                if flight is not None:
                    self._flights[index] = flight
                    self.device.start(index, flight, now)
                elif self.engine.wake_at is not None:
                    times.append(self.engine.wake_at)
        if self._flights:
            ended = self.device.wait(min(times, default=inf))
            return [self.engine.commit(self._flights.pop(index), self.clock.now()) for index in ended]
        if times:
            self.clock.wait_until(min(times), self.engine.wake)
        elif self.engine.idle:
            self.done = True
        return []

    @property
    def _copying(self) -> bool:
        """A flight moves blocks. Those it swaps out are free in the books but not yet copied: nobody may begin."""
        return any(flight.plan.copies for flight in self._flights.values())

    def run(self) -> RunTrace:
        """Drive until every request has ended."""
        try:
            return super().run()
        finally:
            self.device.close()


class SharedTime:
    """Virtual time on a device that all flights share. A runner that has no `demand` wants all of it."""

    def __init__(self, engine: Engine, clock: Clock, lanes: Sequence[Lane]):
        from lab.simulation.lanes import SharedDevice

        self._engine, self._clock, self._lanes = engine, clock, lanes
        self._shared = SharedDevice()

    def start(self, lane: int, flight: Flight, now: float) -> None:
        """Price (or compute) the plan at once; its time passes in `wait`."""
        from lab.simulation.lanes import Demand

        seconds = self._engine.execute(flight).seconds
        demand = getattr(self._engine.runner, "demand", None)
        wants = Demand(seconds, 1.0, 1.0) if demand is None else demand(flight.plan)
        self._shared.start(lane, wants, now, self._lanes[lane].fraction)

    def wait(self, until: float) -> list[int]:
        """Jump to the next end, or to `until` if that is sooner."""
        end = self._shared.next_end()
        if end is None or until < end:
            self._clock.wait_until(until, self._engine.wake)
            return []
        self._clock.wait_until(end, self._engine.wake)
        return self._shared.finish(end)

    def close(self) -> None:
        """Nothing to let go."""


class ThreadDevice:
    """One thread per lane. `surroundings(lane)` is entered once in that thread before it computes anything."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        lanes: int,
        surroundings: Callable[[int], AbstractContextManager] = lambda lane: nullcontext(),
    ):
        self._engine, self._clock, self._surroundings = engine, clock, surroundings
        self._ended: deque[tuple[int, BaseException | None]] = deque()
        self._inboxes: list[SimpleQueue[Flight | None]] = [SimpleQueue() for _ in range(lanes)]
        self._threads = [
            threading.Thread(target=self._work, args=(lane,), name=f"lab-lane-{lane}", daemon=True)
            for lane in range(lanes)
        ]
        for thread in self._threads:
            thread.start()

    def start(self, lane: int, flight: Flight, now: float) -> None:
        """Hand the flight to its lane's thread."""
        self._inboxes[lane].put(flight)

    def wait(self, until: float) -> list[int]:
        """Sleep until a thread is done, somebody submits or aborts, or the clock reaches `until`."""
        if not self._ended:
            self._clock.wait_until(min(until, self._clock.now() + 1.0), self._engine.wake)
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        for _, error in ended:
            if error is not None:
                raise error
        return [lane for lane, _ in ended]

    def close(self) -> None:
        """Every thread finishes its flight and ends."""
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, lane: int) -> None:
        try:
            with self._surroundings(lane):
                while (flight := self._inboxes[lane].get()) is not None:
                    self._engine.execute(flight)
                    self._tell(lane, None)
        except BaseException as error:  # raised again in the driving thread
            self._tell(lane, error)

    def _tell(self, lane: int, error: BaseException | None) -> None:
        self._ended.append((lane, error))
        self._engine.wake.set()
