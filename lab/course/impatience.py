"""Traffic in which the order matters: short and long prompts with deadlines of their own. For notebook 09."""

from __future__ import annotations

import random
from collections.abc import Iterable

from lab.metrics import Report, RequestTimes
from lab.request import SamplingParams
from lab.workload import RequestSpec, Workload

SHORT_TARGET, LONG_TARGET = 1.5, 10.0  # seconds to the first token that they want
LONG = 300  # a prompt of at least so many tokens is a long one


def two_classes(requests: int = 160, rate: float = 2.0, seed: int = 0, long_share: float = 0.2) -> Workload:
    """Chat (16 to 96 tokens, wants its first token within 1.5 s) and documents (300 to 900, 10 s), Poisson arrivals."""
    draw, now, specs = random.Random(seed), 0.0, []
    for _ in range(requests):
        long = draw.random() < long_share
        prompt = draw.randint(LONG, 900) if long else draw.randint(16, 96)
        sampling = SamplingParams(max_tokens=draw.randint(4, 24), ignore_eos=True)
        specs.append(RequestSpec(now, prompt, sampling, deadline=LONG_TARGET if long else SHORT_TARGET))
        now += draw.expovariate(1.0)
    return Workload(f"two-classes-{requests}-seed{seed}", tuple(specs), rate=rate)


def one_long_among_short(short: int = 200, every: float = 0.3, tokens: int = 96) -> Workload:
    """A document of 600 tokens that arrives at the start, and a stream of short prompts that never lets up."""
    sampling = SamplingParams(max_tokens=2, ignore_eos=True)
    specs = [RequestSpec(0.01, 600, sampling)]
    specs += [RequestSpec(every * place, tokens, sampling) for place in range(short)]
    return Workload(f"one-long-{short}-short", tuple(specs))


def in_time(report: Report) -> float:
    """Share of the requests whose first token came before its deadline."""
    times, infos = report.times, report.trace.requests
    met = [times[i].arrival + times[i].ttft <= infos[i].deadline for i in times if infos[i].deadline is not None]
    return sum(met) / max(1, len(met))


def ttft_of(report: Report, long: bool) -> list[float]:
    """TTFT of all long, or all short prompts, sorted."""
    return sorted(times.ttft for times in _of_class(report, long))


def _of_class(report: Report, long: bool) -> Iterable[RequestTimes]:
    infos = report.trace.requests
    return (times for times in report.times.values() if times.done and (infos[times.id].num_prompt >= LONG) == long)


def pressed_workload(requests: int = 60, rate: float = 1.0, seed: int = 1) -> Workload:
    """Prompts of 16 to 96 tokens, some of 150 to 300, and answers of 40 to 120: too much for a small pool of blocks."""
    draw, now, specs = random.Random(seed), 0.0, []
    for _ in range(requests):
        prompt = draw.randint(150, 300) if draw.random() < 0.2 else draw.randint(16, 96)
        specs.append(RequestSpec(now, prompt, SamplingParams(max_tokens=draw.randint(40, 120), ignore_eos=True)))
        now += draw.expovariate(1.0)
    return Workload(f"pressed-{requests}-seed{seed}", tuple(specs), rate=rate)
