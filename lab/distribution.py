"""Mean and percentiles of many values, the same definition everywhere."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean and percentiles (linear interpolation) in the unit of the values; None where there are none."""

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None

    @classmethod
    def of(cls, values: Iterable[float]) -> Distribution:
        """Summarise `values`."""
        ordered = sorted(values)
        if not ordered:
            return cls()
        return cls(sum(ordered) / len(ordered), *(percentile(ordered, q) for q in (0.5, 0.95, 0.99)))

    @classmethod
    def weighted(cls, counts: dict[float, int]) -> Distribution:
        """Summarise values that each occur `counts[value]` times."""
        ordered, total = sorted(counts), sum(counts.values())
        if not total:
            return cls()
        upto = list(accumulate(counts[value] for value in ordered))
        mean = sum(value * count for value, count in counts.items()) / total

        def quantile(q: float) -> float:
            place = q * (total - 1)
            low = int(place)
            a, b = (ordered[bisect_right(upto, index)] for index in (low, min(low + 1, total - 1)))
            return a + (b - a) * (place - low)

        return cls(mean, *(quantile(q) for q in (0.5, 0.95, 0.99)))


def percentile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile (0 to 1) of sorted values, interpolated linearly between neighbours."""
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
