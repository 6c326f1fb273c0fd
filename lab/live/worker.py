"""The thread that drives one run of a session, from the first policy to the last, and the one that reports on it.

Worker   touches engines; between steps it carries out commands and stands still when asked to
Ticker   10 times a second (or when poked) hands what changed to the listeners; samples utilisation
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from lab.errors import LabError
from lab.live import registry
from lab.live.asked import policy_of
from lab.live.lane import Lane, limit_of, with_limit
from lab.live.monitor import Monitor
from lab.live.pace import make_live_clock
from lab.live.story import Story
from lab.running import build_engine, run, with_rate
from lab.workload import Workload

if TYPE_CHECKING:
    from lab.live.session import Session

MAX_BLOCKS = 1024


class Worker(threading.Thread):
    """One run of all policies. Attributes are read by other threads; only this thread writes state and lanes."""

    def __init__(self, session: Session, paused: bool):
        super().__init__(name="lab-live-engine", daemon=True)
        self.session, self.controls = session, session.controls
        self.state, self.note = "preparing", ""
        self.error: BaseException | None = None
        self.lanes: list[Lane] = []
        self.active = 0
        self.ack = 0
        self.halted, self.wake, self.parked = threading.Event(), threading.Event(), threading.Event()
        self.paused, self.steps_wanted = paused, 0
        self.commands: deque[tuple[int, Callable[[Lane], None] | None]] = deque()
        self.story: Story | None = None
        self.ticker = Ticker(self)

    # -- any thread ------------------------------------------------------------------------------------------
    def poke(self) -> None:
        """Look at commands and flags now instead of at the end of a wait."""
        self.wake.set()
        if self.lanes and not self.lanes[-1].done:
            self.lanes[-1].engine.wake.set()
        self.ticker.wake.set()

    @property
    def lane(self) -> Lane | None:
        """The lane that runs, or ran last."""
        return self.lanes[-1] if self.lanes else None

    # -- this thread -----------------------------------------------------------------------------------------
    def run(self) -> None:
        """Drive everything; whatever goes wrong is kept in `error`."""
        self.ticker.start()
        try:
            self._prepare()
            for index, name in enumerate(self.session.runs):
                if self.halted.is_set():
                    break
                self.active = index
                self._drive(self._open(name))
            self.state = "stopped" if self.halted.is_set() else "finished"
        except BaseException as error:  # an engine thread must not die silently
            self.error, self.state = error, "failed"
            self.note = f"{type(error).__name__}: {error}"
        finally:
            for lane in self.lanes:
                lane.finish()
            self.parked.set()
            self.poke()

    def _prepare(self) -> None:
        """Encode the prompts, measure the capacity if the load is a multiple of it, warm kernels up."""
        session, work = self.session, self.session.work
        self._park(None)
        if self.controls.load.name == "load" and self.controls.capacity is None:
            self.note = "measuring the capacity of this machine"
            rated = with_rate(work, session.model)
            self.controls.capacity = rated.rate / work.load
        work = work if work.load is None else work.at_rate(self.controls.capacity)
        self.story = Story(work, session.model, session.endless, session.seconds)
        self.story.start_at(self.controls.rate())
        if session.warm_up and session.measured:
            self.note = "warming up"
            for options in session.runs.values():
                if not self.halted.is_set():
                    run(_short(session.work), session.model, **options)
        self.note = ""

    def _open(self, name: str) -> Lane:
        """An engine for the next policy, at the present settings."""
        options = dict(self.session.runs[name])
        if "max_batch" in self.controls.touched and limit_of(policy_of(options)) is not None:
            options["batching"] = with_limit(policy_of(options), int(self.controls.max_batch.value))
        if options.get("blocks") is None and not hasattr(self.session.model, "default_blocks"):
            options["blocks"] = self._blocks(options.get("block_size", 16))
        engine = build_engine(self.session.model, **options)
        engine.trace.meta |= {
            "clock": self.session.clock,
            "measured": self.session.measured,
            "workload": self.session.work.name,
            "rate": self.controls.rate(),
        }
        speed = self.controls.speed.value if self.controls.speed else 1.0
        lane = Lane(name, engine, make_live_clock(self.session.clock, speed), self.story, self.session.slo)
        for pace in self.story.paces[1:]:
            lane.feed.mark(pace.time, f"load → {pace.rate:.3g} requests/s")
        self.lanes.append(lane)
        return lane

    def _blocks(self, block_size: int) -> int:
        """A pool in which the largest batch the slider allows can hold its largest requests, within reason."""
        batch = int(self.controls.max_batch.high) if self.controls.max_batch else 16
        largest = -(-self.story.largest // block_size)
        by_hand = -(-(self.session.long_prompt_tokens + 64) // block_size)
        return max(largest, min(MAX_BLOCKS, batch * largest + by_hand))

    def _drive(self, lane: Lane) -> None:
        while not (lane.done or self.halted.is_set()):
            self._obey(lane)
            if self.paused or registry.measuring():
                self._park(lane)
            self.state = "running"
            if not lane.done:
                lane.tick(self.halted)
            self._say_refusals(lane)
        lane.finish()

    def _say_refusals(self, lane: Lane) -> None:
        """A prompt sent by hand that can never be served must not vanish without a word."""
        while lane.refusals:
            self.session.news.say(f"{lane.name} refused the prompt sent by hand: {lane.refusals.popleft()}")

    def _obey(self, lane: Lane) -> None:
        while self.commands:
            number, command = self.commands.popleft()
            if command is not None:
                try:
                    command(lane)
                except LabError as error:  # what was checked when it was asked may have changed since
                    self.session.news.say(str(error))
            self.ack = max(self.ack, number)
            self.ticker.wake.set()

    def _park(self, lane: Lane | None) -> None:
        """Stand still while a person paused or somebody measures; single steps are taken from here."""
        while (self.paused or registry.measuring()) and not self.halted.is_set():
            if lane is not None and self.paused and self.steps_wanted and not registry.measuring():
                self._single(lane)
                if lane.done:
                    return
                continue
            if lane is None and self.paused:
                return  # nothing computes yet; stand still before the first step
            if lane is not None:
                lane.clock.freeze()
                self._obey(lane)
            self._say_paused(lane)
            self.wake.wait(0.5)
            self.wake.clear()
        self.parked.clear()
        if lane is not None and not lane.done:
            lane.clock.thaw()

    def _say_paused(self, lane: Lane | None) -> None:
        if lane is not None:
            lane.picture()
        if not self.parked.is_set():
            self.parked.set()
            self.ticker.wake.set()
        self.state = "paused"
        if not self.paused:
            self.note = "paused while something else is measured"
        elif self.note == "paused while something else is measured":
            self.note = ""

    def _single(self, lane: Lane) -> None:
        self.steps_wanted -= 1
        self.parked.clear()
        lane.clock.thaw()
        self._obey(lane)
        while not (lane.done or self.halted.is_set()):
            if lane.tick(self.halted, jump=True) is not None:
                break
        self._say_refusals(lane)
        lane.clock.freeze()
        self.ticker.wake.set()


def _short(work: Workload) -> Workload:
    """Two requests with a few tokens each: enough to load kernels and caches."""
    specs = [replace(spec, arrival=0.0, sampling=replace(spec.sampling, max_tokens=3)) for spec in work.specs[:2]]
    return Workload("warm-up", tuple(specs))


class Ticker(threading.Thread):
    """Tells the session's listeners what is new. Lives as long as its worker."""

    interval, sampling = 0.1, 0.5

    def __init__(self, worker: Worker):
        super().__init__(name="lab-live-ticker", daemon=True)
        self.worker, self.wake = worker, threading.Event()
        self._counted: tuple[Any, tuple[float, ...]] = (None, (0.0, 0.0, 0.0))

    def run(self) -> None:
        """Report until the worker has ended, then once more."""
        monitor = Monitor(modelled=not self.worker.session.measured)
        sampled = due = time.perf_counter()
        self.worker.session.news.notes = monitor.notes  # it may add to them
        while True:
            alive = self.worker.is_alive()
            now = time.perf_counter()
            if now - sampled >= self.sampling and self.worker.lane is not None:
                sampled = now
                self._sample(monitor)
            if self.worker.lane is not None:
                self.worker.lane.show_arrivals()
            self.worker.session.news.publish()
            if not alive:
                break
            due = max(due + self.interval, now)
            if self.wake.wait(max(0.0, due - time.perf_counter())):
                self.wake.clear()
        monitor.close()

    def _sample(self, monitor: Monitor) -> None:
        lane = self.worker.lane
        feed, (before, counted) = lane.feed, self._counted
        if feed.peaks is None and monitor.peaks is not None:
            feed.peaks = asdict(monitor.peaks)
        sums = (feed.flops, feed.bytes, feed.busy)
        past = counted if before is lane else (0.0, 0.0, 0.0)
        monitor.work(*(now - then for now, then in zip(sums, past, strict=True)))
        self._counted = (lane, sums)
        readings = monitor.sample()
        if self.worker.state == "running":
            feed.measure(lane.now(), readings)
