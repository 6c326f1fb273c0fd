"""Traffic for notebooks 02 and 03: lengths that differ, and arrivals that are calm, bursty, or come in clumps.

All of it is the same on every computer: drawn with a seed, or read from `data/synthetic`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from lab.traces import azure
from lab.workload import DATA, Workload, fixed_workload

#: One request of a model that makes one pass: this many tokens in, one result out.
ONE_PASS_TOKENS = 10


def mixed_workload(requests: int = 96, rate: float | None = 1.0, seed: int = 0) -> Workload:
    """Prompts of 5 to 400 tokens, answers of 4 to 96, both log-normal; Poisson arrivals, or all at once (None).

    The same lengths at every rate.
    """
    draw, gaps, now = random.Random(seed), random.Random(seed + 1), 0.0
    prompts, outputs, arrivals = [], [], []
    for _ in range(requests):
        prompts.append(min(400, max(5, round(draw.lognormvariate(4, 1)))))
        outputs.append(min(96, max(4, round(draw.lognormvariate(3, 0.7)))))
        arrivals.append(now)
        now += gaps.expovariate(rate) if rate else 0.0
    return fixed_workload(prompts, outputs, arrivals)


def one_pass(arrivals: Sequence[float]) -> Workload:
    """Requests of equal size that take one step each, as for an embedding or a classifier."""
    return fixed_workload([ONE_PASS_TOKENS] * len(arrivals), [1] * len(arrivals), arrivals)


def calm(rate: float, requests: int = 1500, seed: int = 0) -> list[float]:
    """Poisson arrivals: everybody decides alone."""
    draw, now, times = random.Random(seed), 0.0, []
    for _ in range(requests):
        times.append(now)
        now += draw.expovariate(rate)
    return times


def bursty(rate: float, requests: int = 1500, seed: int = 0) -> list[float]:
    """Arrivals of the synthetic trace `azure-code-like.csv`, told at another rate: bursts and long silences.

    Nothing is drawn; seed k takes the k-th part of the trace that has so many requests (of about 1,500).
    """
    work = azure(DATA / "synthetic" / "azure-code-like.csv", limit=requests * (seed + 1))
    times = [spec.arrival for spec in work.specs[requests * seed :]]
    unit = (times[-1] - times[0]) / (len(times) - 1)
    return [(time - times[0]) / unit / rate for time in times]


def clumped(rate: float, requests: int = 1500, seed: int = 0, size: int = 8, spread: float = 0.004) -> list[float]:
    """Clumps of `size` requests within `spread` seconds, as one page view that asks for several things makes them.

    The clumps themselves arrive as a Poisson process; `rate` counts requests.
    """
    draw, now, times = random.Random(seed), 0.0, []
    while len(times) < requests:
        times += [now + draw.uniform(0.0, spread) for _ in range(size)]
        now += draw.expovariate(rate / size)
    return sorted(times)[:requests]
