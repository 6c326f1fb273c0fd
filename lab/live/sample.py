"""A sorted sample that stays small: exact up to `limit` values, an unbiased choice of them beyond."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right, insort

from lab.metrics import percentile


class Sample:
    """Add values, ask for quantiles (as `lab.metrics.percentile` defines them) and for a curve to draw."""

    def __init__(self, limit: int = 20_000):
        self.limit, self.count, self.version = limit, 0, 0
        self.values: list[float] = []
        self._draw = random.Random(0)

    def add(self, value: float) -> None:
        """Take one value in."""
        self.count, self.version = self.count + 1, self.version + 1
        if len(self.values) >= self.limit:
            if self._draw.random() >= self.limit / self.count:
                return
            self.values.pop(self._draw.randrange(len(self.values)))
        insort(self.values, value)

    def remove(self, value: float) -> None:
        """Take one value out again."""
        place = bisect_left(self.values, value)
        if place < len(self.values) and self.values[place] == value:
            self.values.pop(place)
            self.count, self.version = self.count - 1, self.version + 1

    def quantile(self, q: float) -> float | None:
        """The q-quantile, None without values."""
        return percentile(self.values, q) if self.values else None

    def share(self, limit: float) -> float | None:
        """The share of values at most `limit`, None without values."""
        return bisect_right(self.values, limit) / len(self.values) if self.values else None

    def curve(self, points: int = 120) -> list[float]:
        """The sorted values, at most `points` of them, smallest and largest kept."""
        n = len(self.values)
        if n <= points:
            chosen = self.values
        else:
            chosen = [self.values[round(i * (n - 1) / (points - 1))] for i in range(points)]
        return [round(value, 5) for value in chosen]
