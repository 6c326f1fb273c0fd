"""The shape of Orca's experiment (Yu et al., OSDI 2022, section 6): its traffic and its measure, for any prices."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median

from lab.metrics import Report
from lab.request import SamplingParams
from lab.workload import RequestSpec, Workload


def orca_workload(requests: int = 60, seed: int = 0) -> Workload:
    """Prompts of 32 to 512 tokens and answers of 1 to 128, both uniform, no early stop, Poisson arrivals.

    The rate is 1 request/s; `at_rate` tells the same story faster.
    """
    draw, now, specs = random.Random(seed), 0.0, []
    for _ in range(requests):
        sampling = SamplingParams(max_tokens=draw.randint(1, 128), ignore_eos=True)
        specs.append(RequestSpec(now, draw.randint(32, 512), sampling))
        now += draw.expovariate(1.0)
    return Workload(f"orca-{requests}-seed{seed}", tuple(specs), rate=1.0)


def normalised_latency(report: Report) -> float:
    """Median over the requests of end-to-end seconds divided by output tokens."""
    return median(times.e2e / len(times.tokens) for times in report.times.values() if times.done)


def rate_within(rates: Sequence[float], latencies: Sequence[float], limit: float) -> float | None:
    """The highest of `rates` whose latency is at most `limit`; None where there is none."""
    return max((rate for rate, latency in zip(rates, latencies, strict=True) if latency <= limit), default=None)
