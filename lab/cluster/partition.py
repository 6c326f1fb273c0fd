"""Strategies: which prompt goes to which device. Each returns one list of prompt indices per device.

They are the classic answers to multiprocessor scheduling. Loads are measured with the cost that is given; with a
padded kernel the cost of a prompt depends on its neighbours, and that is where the balancing ones go wrong.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from lab.cluster.prefill import PrefillCost
from lab.errors import BadPolicy

Groups = list[list[int]]
Strategy = Callable[[Sequence[int], int, PrefillCost], Groups]

MOST_TO_ENUMERATE = 12


def fifo(prompts: Sequence[int], devices: int, cost: PrefillCost) -> Groups:
    """Contiguous runs in arrival order, equal counts (the first devices take one more where it does not divide)."""
    share, extra = divmod(len(prompts), devices)
    groups, start = [], 0
    for device in range(devices):
        count = share + (device < extra)
        groups.append(list(range(start, start + count)))
        start += count
    return groups


def round_robin(prompts: Sequence[int], devices: int, cost: PrefillCost) -> Groups:
    """Dealt out in turn."""
    return [list(range(device, len(prompts), devices)) for device in range(devices)]


def least_loaded(prompts: Sequence[int], devices: int, cost: PrefillCost) -> Groups:
    """In arrival order, each to the device with the least work so far (Graham 1966: at most 2 - 1/m × optimal)."""
    return _deal(range(len(prompts)), prompts, devices, cost)


def lpt(prompts: Sequence[int], devices: int, cost: PrefillCost) -> Groups:
    """Longest first, each to the device with the least work so far (Graham 1969: at most 4/3 - 1/3m × optimal)."""
    return _deal(_longest_first(prompts), prompts, devices, cost)


def _longest_first(prompts: Sequence[int]) -> list[int]:
    return sorted(range(len(prompts)), key=lambda index: -prompts[index])


def _deal(order: Sequence[int], prompts: Sequence[int], devices: int, cost: PrefillCost) -> Groups:
    groups: Groups = [[] for _ in range(devices)]
    loads = [0] * devices
    for index in order:
        device = loads.index(min(loads))
        groups[device].append(index)
        loads[device] = cost([prompts[each] for each in groups[device]])
    return groups


def karmarkar_karp(prompts: Sequence[int], devices: int, cost: PrefillCost) -> Groups:
    """Largest differencing (Karmarkar and Karp 1982): join the two partial solutions that are furthest from even.

    Each prompt begins as a solution of its own, all other devices empty. Two solutions are joined back to front,
    the heaviest part of one with the lightest of the other. Works with the cost of each prompt alone.
    """
    solutions: list[tuple] = []
    for number, tokens in enumerate(prompts):
        parts = [(0, [])] * (devices - 1) + [(cost([tokens]), [number])]
        solutions.append((-parts[-1][0], number, parts))
    heapq.heapify(solutions)
    while len(solutions) > 1:
        (_, number, first), (_, _, second) = heapq.heappop(solutions), heapq.heappop(solutions)
        pairs = zip(first, reversed(second), strict=True)
        joined = sorted(((a + b, ones + others) for (a, ones), (b, others) in pairs), key=lambda part: part[0])
        heapq.heappush(solutions, (joined[0][0] - joined[-1][0], number, joined))
    return [members for _, members in solutions[0][2]]


def bucketed(prompts: Sequence[int], devices: int, cost: PrefillCost) -> Groups:
    """Neighbours in length go together, as padding likes it, whatever kernel the work is then measured with.

    The prompts sorted by length are cut into runs such that the longest padded run is as short as it can be.
    """
    order, padded = _longest_first(prompts), PrefillCost("padded", cost.model)
    count = len(order)
    # best[n]: (critical path, total, runs) of the first n prompts of `order` on the devices so far
    best: list[tuple] = [(0, 0, [])] + [(float("inf"), 0, [])] * count
    for _ in range(devices):
        best = [
            min((_with_run(best[start], order[start:n], prompts, padded) for start in range(n + 1)), key=_value)
            for n in range(count + 1)
        ]
    return [list(run) for run in best[count][2]]


def _with_run(plan: tuple, run: list[int], prompts: Sequence[int], cost: PrefillCost) -> tuple:
    work = cost([prompts[index] for index in run])
    return max(plan[0], work), plan[1] + work, [*plan[2], run]


def _value(plan: tuple) -> tuple:
    return plan[:2]


def optimal(prompts: Sequence[int], devices: int, cost: PrefillCost) -> Groups:
    """Every split is looked at (up to 12 prompts): the shortest critical path, and of those the least total work.

    Longest first, so that a branch which cannot win any more is cut early; devices with the same prompts are alike.
    """
    if len(prompts) > MOST_TO_ENUMERATE:
        raise BadPolicy(f"optimal enumerates splits of at most {MOST_TO_ENUMERATE} prompts; these are {len(prompts)}")
    order = _longest_first(prompts)
    alone = [cost([prompts[index]]) for index in order]
    groups: Groups = [[] for _ in range(devices)]
    works = [0] * devices
    best: tuple = ((float("inf"), 0), [])

    def assign(place: int) -> None:
        nonlocal best
        # whatever comes adds to the total at least what it costs alone
        bound = (max(works), sum(works) + sum(alone[place:]))
        if bound >= best[0]:
            return
        if place == len(order):
            best = (bound, [list(group) for group in groups])
            return
        tried = set()
        for device in sorted(range(devices), key=works.__getitem__):
            lengths = tuple(prompts[index] for index in groups[device])
            if lengths not in tried:
                tried.add(lengths)
                before = works[device]
                groups[device].append(order[place])
                works[device] = cost([*lengths, prompts[order[place]]])
                assign(place + 1)
                groups[device].pop()
                works[device] = before

    assign(0)
    return best[1]


STRATEGIES: dict[str, Strategy] = {
    "fifo": fifo,
    "round-robin": round_robin,
    "least-loaded": least_loaded,
    "lpt": lpt,
    "karmarkar-karp": karmarkar_karp,
    "bucketed": bucketed,
    "optimal": optimal,
}
