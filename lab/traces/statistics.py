"""A workload in numbers: how often, how regular, how long, how much of it shared.

IAT is the time between arrivals, CV its standard deviation over its mean (1 for Poisson). IDC is variance over
mean of the counts in windows of one length (1 for Poisson at every length): it sees bursts that IAT does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev, pvariance
from typing import Any

from lab.memory.hash_cache import HashCache
from lab.memory.replay import HitRate, hit_rate
from lab.metrics import Distribution
from lab.workload import Workload


@dataclass(frozen=True, slots=True)
class TraceStatistics:
    """Lengths in tokens, times in seconds. Times are None where all requests arrive at once."""

    requests: int
    prompt: Distribution
    output: Distribution
    span_s: float | None
    requests_per_s: float | None
    iat_cv: float | None
    idc_1s: float | None
    idc_10s: float | None
    hits: HitRate | None  # with an unlimited cache; None where no request has block keys

    @classmethod
    def of(cls, work: Workload) -> TraceStatistics:
        """Statistics of the specs at the workload's rate (at one request per unit where only a load is given)."""
        scale = 1.0 / work.rate if work.rate else 1.0
        times = sorted(spec.arrival * scale for spec in work.specs)
        span = times[-1] - times[0]
        gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
        return cls(
            requests=len(work),
            prompt=Distribution.of(_length(spec.prompt) for spec in work.specs),
            output=Distribution.of(spec.sampling.max_tokens for spec in work.specs),
            span_s=span or None,
            requests_per_s=len(times) / span if span else None,
            iat_cv=pstdev(gaps) / fmean(gaps) if span else None,
            idc_1s=dispersion(times, 1.0) if span else None,
            idc_10s=dispersion(times, 10.0) if span else None,
            hits=hit_rate(work, HashCache()) if any(spec.block_keys for spec in work.specs) else None,
        )


def _length(prompt: Any) -> int:
    return prompt if isinstance(prompt, int) else len(prompt)


def dispersion(times: Sequence[float], window: float) -> float | None:
    """IDC: variance over mean of the counts in whole windows from the first arrival on; None below two windows."""
    windows = int((times[-1] - times[0]) / window)
    if windows < 2:
        return None
    counts = Counter(int((time - times[0]) / window) for time in times)
    return _variance_over_mean(counts[index] for index in range(windows))


def _variance_over_mean(counts: Iterable[int]) -> float | None:
    values = list(counts)
    return pvariance(values) / fmean(values) if any(values) else None
