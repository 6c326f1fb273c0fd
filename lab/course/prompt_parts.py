"""Prompts put together from parts in an order of one's choice: what a cache can share depends on that order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from lab.workload import Workload, fixed_workload

#: Tokens of each part, and how many different versions of it there are among 24 requests.
PARTS = {
    "time of day": (16, 24),  # another one in every request
    "instructions": (96, 1),
    "tools": (64, 1),
    "profile of the user": (48, 4),
    "question": (32, 24),
}


def prompt(order: Sequence[str], request: int) -> tuple[int, ...]:
    """Token ids of request `request` with its parts in this order; each version of a part has ids of its own."""
    tokens: list[int] = []
    for part in order:
        length, versions = PARTS[part]
        start = 10_000 * (1 + list(PARTS).index(part)) + 100 * (request % versions)
        tokens += range(start, start + length)
    return tuple(tokens)


def in_order(order: Sequence[str], requests: int = 24) -> Workload:
    """The requests, one every two seconds."""
    prompts = [prompt(order, request) for request in range(requests)]
    return fixed_workload(prompts, [1] * requests, [2.0 * request for request in range(requests)])


@cache
def computed_with(order: tuple[str, ...]) -> int:
    """Tokens computed for all requests with a prefix cache that never has to forget."""
    from lab.running import run
    from lab.simulation.priced import Priced

    return run(in_order(order), Priced(), prefix_cache="radix", blocks=1024).computed_tokens


def prompts_only(work: Workload) -> Workload:
    """The same requests with answers of one token, where only their prompts matter."""
    specs = tuple(replace(spec, sampling=replace(spec.sampling, max_tokens=1)) for spec in work.specs)
    return replace(work, name=f"{work.name}, prompts only", specs=specs)
