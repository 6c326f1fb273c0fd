"""Counters over time in equal bins. When there are too many, two become one, so that a run of any length fits."""

from __future__ import annotations

from typing import Any

from lab.trace import StepTrace

SUMS = ("tokens", "flops", "bytes")
LEVELS = ("running", "waiting", "prefill", "decode", "wasted", "used", "cached")
NAMES = SUMS + LEVELS


class Series:
    """Sums of SUMS and time averages of LEVELS per bin of `width` seconds; the width doubles when needed."""

    def __init__(self, width: float = 0.25, limit: int = 480):
        self.width, self.limit = width, limit
        self.columns: dict[str, list[float]] = {name: [] for name in NAMES}
        self._fresh = 0  # first bin that changed since `sent`
        self._weight: list[float] = []

    def __len__(self) -> int:
        return len(self._weight)

    def add(self, step: StepTrace, kinds: list[int]) -> None:
        """A step: its tokens go to the bin of its end, all else (rows by kind, too) is spread over its time."""
        while int(step.end / self.width) >= self.limit:
            self._halve()
        first, last = int(step.start / self.width), int(step.end / self.width)
        self._reach(last)
        self.columns["tokens"][last] += step.sampled
        span = max(step.end - step.start, 1e-9)
        levels = dict(zip(LEVELS, (step.running, step.waiting, *kinds, step.used, step.cached), strict=True))
        self._fresh = min(self._fresh, first)
        for place in range(first, last + 1):
            part = max(1e-9, min(step.end, (place + 1) * self.width) - max(step.start, place * self.width))
            weight = self._weight[place]
            self.columns["flops"][place] += step.flops * part / span
            self.columns["bytes"][place] += step.bytes * part / span
            for name, level in levels.items():
                column = self.columns[name]
                column[place] = (column[place] * weight + level * part) / (weight + part)
            self._weight[place] += part

    def _reach(self, place: int) -> None:
        while len(self._weight) <= place:
            self._weight.append(0.0)
            for column in self.columns.values():
                column.append(0.0)

    def _halve(self) -> None:
        pairs = range(0, len(self._weight), 2)
        weights = [self._weight[i : i + 2] for i in pairs]
        for name, column in self.columns.items():
            if name in SUMS:
                self.columns[name] = [sum(column[i : i + 2]) for i in pairs]
            else:
                parts = zip((column[i : i + 2] for i in pairs), weights, strict=True)
                self.columns[name] = [
                    sum(v * w for v, w in zip(values, weight, strict=True)) / (sum(weight) or 1.0)
                    for values, weight in parts
                ]
        self._weight = [sum(weight) for weight in weights]
        self.width *= 2
        self._fresh = 0

    def sent(self) -> None:
        """All bins but the last, which still grows, are on the other side."""
        self._fresh = max(0, len(self) - 1)

    def wire(self, whole: bool) -> dict[str, Any]:
        """{"width", "from", and each column from that bin on}; sums as rates per second."""
        begin = 0 if whole else self._fresh
        columns = {name: [round(v, 2) for v in self.columns[name][begin:]] for name in LEVELS}
        columns |= {name: [round(v / self.width, 2) for v in self.columns[name][begin:]] for name in SUMS}
        columns["busy"] = [round(weight / self.width, 2) for weight in self._weight[begin:]]
        return {"width": self.width, "from": begin, **columns}


class Usage:
    """Readings of the monitor over time; every second one goes when there are too many."""

    def __init__(self, limit: int = 600):
        self.limit = limit
        self.sources: dict[str, list[str]] = {}  # name -> [unit, source]
        self.points: list[list[Any]] = []  # [time, value of each source]
        self._fresh = 0

    @property
    def fresh(self) -> bool:
        """Something has not been sent."""
        return self._fresh < len(self.points)

    def add(self, time: float, readings: list[Any]) -> None:
        """Readings with name, value, unit and source, taken at `time`."""
        for reading in readings:
            self.sources.setdefault(reading.name, [reading.unit, reading.source])
        values = {reading.name: round(reading.value, 1) for reading in readings}
        self.points.append([round(time, 3), *(values.get(name) for name in self.sources)])
        if len(self.points) > self.limit:
            self.points, self._fresh = self.points[::2], 0

    def sent(self) -> None:
        """The other side has it all."""
        self._fresh = len(self.points)

    def wire(self, whole: bool) -> dict[str, Any]:
        """{"sources", "from", "points" from there on}."""
        begin = 0 if whole else self._fresh
        return {"sources": self.sources, "from": begin, "points": self.points[begin:]}
