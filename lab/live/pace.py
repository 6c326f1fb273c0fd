"""Clocks that can be paused: real time without the pauses, and virtual time slowed down to be watched.

Both are driven by one thread. Waiting happens in slices of at most `SLICE` real seconds, so that whoever moves a
slider or presses Stop is heard at once.
"""

from __future__ import annotations

import threading
import time
from math import inf
from typing import Any

from lab.errors import BadPolicy
from lab.numbers import real
from lab.plan import StepResult

SLICE = 0.03


class MeasuredClock:
    """Real seconds since the run began, pauses left out. A step that is only priced is waited for."""

    name = "wall"

    def __init__(self) -> None:
        self._zero = time.perf_counter()
        self._frozen: float | None = None
        self.speed = 1.0

    def now(self) -> float:
        """Seconds since the start, standing still during a pause."""
        return self._frozen if self._frozen is not None else time.perf_counter() - self._zero

    def freeze(self) -> None:
        """Stand still until `thaw`."""
        self._frozen = self.now()

    def thaw(self) -> None:
        """Go on where `freeze` stopped."""
        if self._frozen is not None:
            self._zero = time.perf_counter() - self._frozen
            self._frozen = None

    def skip_to(self, when: float) -> None:
        """Move forward without waiting (single steps while paused)."""
        self._zero -= max(0.0, when - self.now())

    def elapse(self, result: StepResult, start: float, halt: threading.Event) -> None:
        """A computed step has taken its time already."""
        while result.modelled and not halt.is_set():
            left = start + result.seconds - self.now()
            if left <= 0:
                return
            time.sleep(min(left, SLICE))

    def wait_towards(self, when: float, wake: threading.Event) -> None:
        """Sleep towards `when`, for one slice at most."""
        delay = min(when - self.now(), SLICE)
        if delay > 0:
            wake.wait(delay)


class PacedClock:
    """Virtual seconds that pass `speed` times as fast as real ones. The times are those of the virtual clock:
    they depend neither on the speed nor on this machine."""

    name = "virtual"

    def __init__(self, speed: float = 1.0):
        self._now = 0.0
        self._anchor: tuple[float, float] | None = None  # (virtual, real) from which the pace is kept
        self._speed = speed

    @property
    def speed(self) -> float:
        """Virtual seconds per real second; inf does not wait at all."""
        return self._speed

    @speed.setter
    def speed(self, value: float) -> None:
        self._speed, self._anchor = value, None

    def now(self) -> float:
        """The virtual time."""
        return self._now

    def freeze(self) -> None:
        """Virtual time stands still by itself."""

    def thaw(self) -> None:
        """Forget the pace kept so far, so that nothing is caught up."""
        self._anchor = None

    def skip_to(self, when: float) -> None:
        """Jump forward; never back."""
        self._now = max(self._now, when)
        self._anchor = None

    def elapse(self, result: StepResult, start: float, halt: threading.Event) -> None:
        """Let the step's seconds pass; it ends exactly at `start` + its seconds."""
        end = start + result.seconds
        while not halt.is_set() and (left := self._left(end)) > 0.001:
            time.sleep(min(left, SLICE))
        self._now = end

    def wait_towards(self, when: float, wake: threading.Event) -> None:
        """Move to `when`, or by one slice."""
        if self._speed == inf:
            self._now = max(self._now, when)
            return
        target = min(when, self._now + SLICE * self._speed)
        left = self._left(target)
        if left > 0 and wake.wait(left):
            return
        self._now = max(self._now, target)

    def _left(self, when: float) -> float:
        """Real seconds until virtual `when`. Falling far behind is forgiven instead of caught up."""
        if self._speed == inf:
            return 0.0
        real, speed, anchor = time.perf_counter(), self._speed, self._anchor
        if anchor is None:
            anchor = self._anchor = (self._now, real)
        left = anchor[1] + (when - anchor[0]) / speed - real
        if left < -0.2:
            self._anchor = (when, real)
        return left


def checked_clock(name: str, speed: float, seconds: float | None) -> str:
    """The name of a clock. Raises BadPolicy for an unknown one, a speed that is not above 0, seconds that are none."""
    if seconds is not None:
        real(seconds, "a session's seconds are")
    if name not in ("wall", "virtual"):
        raise BadPolicy(f"clock {name!r} is not known; there are wall and virtual")
    checked_speed(speed)
    return name


def checked_speed(value: Any) -> float:
    """Virtual seconds per real one. Raises BadPolicy for what is no number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise BadPolicy(f"speed is {value!r}; it must be a number above 0 (inf: as fast as it goes)")
    return float(value)


def make_live_clock(name: str, speed: float = 1.0) -> MeasuredClock | PacedClock:
    """ "wall" or "virtual"."""
    return MeasuredClock() if name == "wall" else PacedClock(speed)
