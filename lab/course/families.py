"""Traffic of families: prompts of one family share a long beginning. And a stream that shares, met by a stranger."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

from lab.metrics import Report
from lab.workload import Workload, fixed_workload

STRANGER = 0.5  # seconds after which the stranger of `with_stranger` arrives


def families(
    requests: int = 96, groups: int = 10, prefix: int = 256, own: int = 32, rate: float = 8.0, seed: int = 0
) -> Workload:
    """Poisson arrivals; each request draws one of `groups` beginnings of `prefix` tokens and adds `own` tokens."""
    draw = random.Random(seed)
    now, prompts, outputs, arrivals = 0.0, [], [], []
    for request in range(requests):
        group = draw.randrange(groups)
        start = 100_000 + 1000 * request
        prompts.append((*range(1000 * group, 1000 * group + prefix), *range(start, start + own)))
        outputs.append(draw.randint(8, 40))
        arrivals.append(now)
        now += draw.expovariate(rate)
    return fixed_workload(prompts, outputs, arrivals)


def with_stranger(requests: int = 120, gap: float = 0.045) -> tuple[Workload, int]:
    """A stream that shares its beginning, a little faster than it can be served, and one prompt that shares nothing.

    Returns the workload and the number of the stranger.
    """
    stream = [(*range(128), 5000 + request) for request in range(requests)]
    arrivals = [gap * request for request in range(requests)]
    place = sum(arrival <= STRANGER for arrival in arrivals)
    stream.insert(place, tuple(range(9000, 9129)))
    arrivals.insert(place, STRANGER)
    work = fixed_workload(stream, [2] * len(stream), arrivals)
    return replace(work, name="a stranger in a stream"), place


def wait_of(report: Report, request: int) -> float:
    """Seconds from its arrival to the first step it took part in."""
    times = report.times[request]
    return times.admitted - times.arrival


def prompt_tokens(report: Report) -> int:
    """Tokens of all prompts."""
    return sum(info.num_prompt for info in report.trace.requests.values())


def found(report: Report) -> float:
    """Share of the prompt tokens that came from the cache when a request was first admitted.

    `report.cached_tokens` also counts what a preempted request finds again of its own.
    """
    first: dict[int, int] = {}
    for event in report.trace.events():
        if event.kind == "admitted":
            first.setdefault(event.request, event.value)
    return sum(first.values()) / prompt_tokens(report)


def all_at_once(work: Workload) -> Workload:
    """The same requests, all of them there from the start."""
    specs = tuple(replace(spec, arrival=0.0) for spec in work.specs)
    return replace(work, name=f"{work.name}, all at once", specs=specs, rate=None, load=None)


def small_batch() -> list[tuple[int, ...]]:
    """Six prompts of two families, interleaved: few enough to try every order."""
    left, right = tuple(range(12)), tuple(range(50, 58))
    return [
        (*left, 100, 101),
        (*right, 110, 111, 112),
        (*left[:6], 120, 121, 122, 123),
        (*right, 130, 131),
        (*left, 140, 141, 142),
        (*right[:4], 150, 151, 152, 153, 154, 155),
    ]


def served(prompts: list[tuple[int, ...]], ordering: str = "fcfs") -> int:
    """Tokens taken from a cache that holds little more than the longest prompt, one request at a time."""
    from lab.running import run
    from lab.simulation.priced import Priced

    work = fixed_workload(prompts, [1] * len(prompts))
    options = {"blocks": max(map(len, prompts)), "block_size": 1, "prefix_cache": "radix"}
    return run(work, Priced(), ordering=ordering, batching="continuous:1", **options).cached_tokens


def every_order(prompts: list[tuple[int, ...]]) -> list[int]:
    """Cached tokens for every order in which the prompts could be served."""
    return [served(list(order)) for order in permutations(prompts)]
