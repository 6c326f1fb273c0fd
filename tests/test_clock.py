from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest
from harness import make_engine, request

from lab.batching.protocol import Admission, QueueView
from lab.batching.static import Static
from lab.clock import Driver, VirtualClock, WallClock, make_clock
from lab.errors import BadPolicy
from lab.plan import StepResult


@dataclass
class RecordingClock(VirtualClock):
    """A virtual clock that remembers where it was told to go."""

    name = "recording"
    targets: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def wait_until(self, when: float, wake: threading.Event) -> None:
        self.targets.append(when)
        super().wait_until(when, wake)


class Timer:
    """Joins nobody before `delay` seconds after the oldest arrival: what dynamic batching does."""

    name, attention, delivery = "timer-test", "packed", "token"
    carries_finished = admits_together = False

    def __init__(self, delay: float):
        self.delay = delay

    def admit(self, view: QueueView) -> Admission:
        if view.oldest_arrival is None:
            return Admission(0)
        due = view.oldest_arrival + self.delay
        return Admission(8) if view.now >= due else Admission(0, wake_at=due)


class Never(Timer):
    """Admits nobody and sets no timer."""

    name = "never-test"

    def admit(self, view: QueueView) -> Admission:
        return Admission(0)


def test_virtual_clock_jumps_and_never_goes_back() -> None:
    clock = VirtualClock()
    assert clock.now() == 0.0
    clock.wait_until(5.0, threading.Event())
    clock.wait_until(3.0, threading.Event())
    assert clock.now() == 5.0
    clock.elapse(StepResult([], [], 0.25), 5.0)
    assert clock.now() == 5.25


def test_virtual_clock_takes_real_runners_at_their_word() -> None:
    clock = VirtualClock()
    clock.elapse(StepResult([], [], 1000.0, modelled=False), 0.0)
    assert clock.now() == 1000.0


def test_wall_clock_waits_for_modelled_seconds_and_not_for_measured_ones() -> None:
    clock = WallClock()
    start = clock.now()
    clock.elapse(StepResult([], [], 30.0, modelled=False), start)  # was spent already; a hang would fail the test
    clock.elapse(StepResult([], [], 0.02, modelled=True), start)
    assert clock.now() >= start + 0.02


def test_wall_clock_waiting_is_interruptible() -> None:
    clock, wake = WallClock(), threading.Event()
    wake.set()
    clock.wait_until(clock.now() + 120.0, wake)  # returns at once, or the test's time limit is hit
    other = threading.Event()
    waiter = threading.Thread(target=clock.wait_until, args=(clock.now() + 120.0, other))
    waiter.start()
    other.set()
    waiter.join(timeout=60)
    assert not waiter.is_alive()


def test_wall_clock_does_not_wait_for_the_past() -> None:
    WallClock().wait_until(-1.0, threading.Event())


def test_clocks_by_name() -> None:
    assert isinstance(make_clock("wall"), WallClock) and isinstance(make_clock("virtual"), VirtualClock)
    with pytest.raises(BadPolicy, match="clock 'sun' is not known; there are wall, virtual"):
        make_clock("sun")


def test_the_driver_goes_to_the_earliest_of_step_end_and_arrival() -> None:
    engine, clock = make_engine(), RecordingClock()
    requests = [request(1, 3, 1, arrival=50.0), request(0, 3, 2, arrival=2.0)]  # in no order
    Driver(engine, requests, clock).run()
    assert clock.targets == [2.0, 50.0]
    assert [step.start for step in engine.trace][::2] == [2.0, 50.0]
    assert engine.trace[1].start == engine.trace[0].end  # no waiting while there is work
    assert clock.now() == engine.trace[-1].end


def test_an_arrival_during_a_step_joins_the_next_one() -> None:
    engine = make_engine()
    requests = [request(0, 3, 3), request(1, 3, 1, arrival=0.001)]
    Driver(engine, requests, VirtualClock()).run()
    assert [[row.request for row in step.rows] for step in engine.trace] == [[0], [0, 1], [0]]


def test_a_timer_wakes_the_driver() -> None:
    engine, clock = make_engine(batching=Timer(0.7)), RecordingClock()
    Driver(engine, [request(0, 3, 1, arrival=1.0), request(1, 3, 1, arrival=1.2)], clock).run()
    assert clock.targets == [1.0, 1.2, 1.7]
    assert len(engine.trace) == 1 and engine.trace[0].start == 1.7 and len(engine.trace[0].rows) == 2


def test_the_driver_tells_the_engine_when_nobody_comes_any_more() -> None:
    seen = []

    class Watching(Static):
        name = "watching-test"

        def admit(self, view: QueueView) -> Admission:
            seen.append((view.waiting, view.more_expected))
            return super().admit(view)

    engine = make_engine(batching=Watching(2))
    requests = [request(id, 3, 1, arrival=float(id)) for id in range(3)]
    Driver(engine, requests, VirtualClock()).run()
    assert seen[0] == (0 if requests[0].arrival_time else 1, True)
    assert (1, False) in seen and seen[-1] == (0, False)
    assert [len(step.rows) for step in engine.trace] == [2, 1]  # the last batch starts short
    assert engine.trace[0].start == 1.0 and engine.trace[1].start == 2.0


def test_a_batching_that_never_starts_is_named_and_does_not_hang() -> None:
    engine = make_engine(batching=Never(0))
    with pytest.raises(BadPolicy, match="1 requests wait.*never-test batching never starts them"):
        Driver(engine, [request(0, 3)], VirtualClock()).run()


def test_nothing_to_do_is_done_at_once() -> None:
    driver = Driver(make_engine(), [], VirtualClock())
    trace = driver.run()
    assert driver.done and len(trace) == 0


def test_events_after_the_last_step_are_kept() -> None:
    engine = make_engine(blocks=2)
    trace = Driver(engine, [request(0, 3, 1), request(1, 90, 1, arrival=9.0)], VirtualClock()).run()
    assert [event.kind for event in trace.late_events] == ["arrived", "refused"]


def test_submit_from_outside_ends_a_wait_on_the_wall_clock() -> None:
    engine, sent = make_engine(), request(1, 3, 1)
    driver = Driver(engine, [request(0, 3, 1, arrival=1000.0)], WallClock())

    def drive() -> None:
        while sent.status != "finished":
            driver.tick()

    thread = threading.Thread(target=drive, daemon=True)
    thread.start()
    engine.submit(sent)
    thread.join(timeout=60)  # long before the arrival at 1,000 s
    assert not thread.is_alive() and len(sent.output) == 1


def test_wall_and_virtual_clock_make_the_same_steps() -> None:
    shapes = []
    for clock in (WallClock(), VirtualClock()):
        engine = make_engine(chunking="budget:5", batching="continuous:2")
        engine.runner.price = 0.0
        Driver(engine, [request(id, 4 + id, 3) for id in range(4)], clock).run()
        shapes.append([[(row.request, row.num_tokens, row.token) for row in step.rows] for step in engine.trace])
    assert shapes[0] == shapes[1]
