"""Is a timer worth it? Mean latency with and without, over the same arrivals, and a verdict from the numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from lab.course.traffic import one_pass
from lab.metrics import Report
from lab.running import run

BLOCKS = 4000  # room for every queue of these experiments
MOST = 64  # the limit of a batch


def serve(arrivals: Sequence[float], prices: Any, control: str, most: int = MOST) -> Report:
    """One-pass requests at `arrivals` through dynamic batching with a controller (its spec)."""
    return run(one_pass(arrivals), prices, batching=f"dynamic:{most}:{control}", blocks=BLOCKS)


@dataclass(frozen=True, slots=True)
class Gain:
    """How much shorter the mean latency is with a timer of `delay` seconds, as a share of that without."""

    traffic: str
    rate: float
    delay: float
    shares: tuple[float, ...]  # one per seed; below 0: longer

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return fmean(self.shares)


def best_timer(
    traffic: str,
    make: Callable[..., list[float]],
    rate: float,
    prices: Any,
    *,
    delays: Sequence[float] = (0.002, 0.005, 0.010),
    seeds: Sequence[int] = (0, 1, 2),
    requests: int = 500,
) -> Gain:
    """Of `delays` the one that gains most on average, compared with no timer on the same arrivals.

    The best is chosen after the fact, in the timer's favour.
    """
    shares: dict[float, list[float]] = {delay: [] for delay in delays}
    for seed in seeds:
        arrivals = make(rate, requests=requests, seed=seed)
        without = serve(arrivals, prices, "greedy").e2e_s.mean
        for delay in delays:
            shares[delay].append(1 - serve(arrivals, prices, f"fixed:{delay}").e2e_s.mean / without)
    gains = [Gain(traffic, rate, delay, tuple(found)) for delay, found in shares.items()]
    return max(gains, key=lambda gain: gain.mean)


def verdict(gains: Sequence[Gain], least: float = 0.05) -> str:
    """In words, for one kind of traffic: a gain counts where it is above `least` with every seed."""
    real = [gain for gain in gains if min(gain.shares) > least]
    if real:
        where = ", ".join(f"{gain.rate:g}" for gain in real)
        return f"a timer shortens the mean latency, by up to {max(gain.mean for gain in real):.0%} ({where} requests/s)"
    return f"no timer shortens the mean latency by more than {least:.0%} every time"
