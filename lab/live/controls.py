"""What the sliders stand on: load, batch size, playback speed. Checked here, whoever moves them."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from lab.errors import BadPolicy, BadWorkload
from lab.live.lane import limit_of
from lab.live.pace import checked_speed
from lab.numbers import real, whole
from lab.workload import Workload

FASTEST = 10_000  # requests per second, or times the recorded pace: beyond it only arrivals would be made


@dataclass(slots=True)
class Slider:
    """A number in [low, high]; the browser moves it by `step`, or by equal ratios when `log`."""

    name: str
    value: float
    low: float
    high: float
    step: float
    log: bool = False

    def wire(self) -> dict[str, Any]:
        """What the browser gets; a value without end, as fast as it goes, is None."""
        names = ("name", "low", "high", "step", "log")
        return {name: getattr(self, name) for name in names} | {"value": self.value if isfinite(self.value) else None}


@dataclass(slots=True)
class Controls:
    """Present settings. `load` means what the workload says: × capacity, requests/s, or × the recorded pace."""

    load: Slider
    max_batch: Slider | None
    speed: Slider | None
    capacity: float | None = None  # requests/s, once measured
    touched: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, work: Workload, policies: list[Any], clock: str, speed: float) -> Controls:
        """Sliders around the given values."""
        if work.load is not None:
            load = Slider("load", work.load, 0.1, 4.0, 0.05, log=True)
        elif work.rate is not None:
            load = Slider("rate", work.rate, work.rate / 8, work.rate * 8, 0.01, log=True)
        else:
            load = Slider("pace", 1.0, 1 / 8, 8.0, 0.01, log=True)
        load.low, load.high = min(load.low, load.value), max(load.high, load.value)
        limits = [limit for limit in map(limit_of, policies) if limit]
        batch = Slider("max_batch", limits[0], 1, max(16, *limits), 1) if limits else None
        return cls(load, batch, Slider("speed", speed, 0.05, 50.0, 0.05, log=True) if clock == "virtual" else None)

    def rate(self) -> float:
        """Gaps of the story per second at the present load."""
        return self.load.value * (self.capacity or 1.0)

    def check(self, name: str, value: Any) -> float:
        """The value as a number this control can take. Raises BadPolicy or BadWorkload naming it."""
        if name in ("load", "rate", "pace"):
            number = real(value, f"{name} is", error=BadWorkload)
            if name != self.load.name:
                raise BadWorkload(f"this workload is paced by {self.load.name}, not by {name}")
            if not 0 < number <= FASTEST:
                raise BadWorkload(f"{name} is {value}; it must be above 0 and at most {FASTEST:,}")
        elif name == "max_batch":
            if self.max_batch is None:
                raise BadPolicy("none of these policies has a batch size to change")
            number = whole(value, "max_batch is")
        elif name == "speed":
            if self.speed is None:
                raise BadPolicy("a measured run passes in real time; only the virtual clock has a speed")
            number = checked_speed(value)
        else:
            raise BadPolicy(f"{name} is not a live setting; there are load, rate, pace, max_batch, speed and the axes")
        return number

    def put(self, name: str, value: float) -> None:
        """Remember a checked value."""
        slider = self.load if name in ("load", "rate", "pace") else getattr(self, name)
        slider.value = value
        self.touched.add(slider.name)

    def wire(self) -> list[dict[str, Any]]:
        """All sliders, for the browser."""
        return [slider.wire() for slider in (self.load, self.max_batch, self.speed) if slider is not None]
