"""Checks of notebook 09: longest first, prompts it places badly, who is next, and an age that starts anew.

Written together with notebooks/instructor/source/09_latency_aware.py, which calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from lab.cluster.placement import Placement, place
from lab.cluster.prefill import PrefillCost
from lab.course.broken import run_planted
from lab.course.broken_scheduling import age_starts_anew
from lab.course.checks import Probe, exercise
from lab.course.impatience import pressed_workload, two_classes
from lab.course.next_rule import NextRule
from lab.metrics import Report
from lab.request import Request
from lab.simulation.priced import Priced
from lab.trace import RunTrace
from lab.workload import Workload

PRICES = {"step": 0.040, "token": 0.002}
Cost = Callable[[Sequence[int]], int]


def longest_first(prompts: Sequence[int], devices: int, cost: Cost) -> list[list[int]]:
    """A solution of 09.1."""
    groups: list[list[int]] = [[] for _ in range(devices)]
    for tokens in sorted(prompts, reverse=True):
        min(groups, key=cost).append(tokens)
    return groups


def _dealt(prompts: Sequence[int], devices: int, cost: Cost) -> list[list[int]]:
    ordered = sorted(prompts, reverse=True)
    return [ordered[device::devices] for device in range(devices)]


def _as_they_come(prompts: Sequence[int], devices: int, cost: Cost) -> list[list[int]]:
    groups: list[list[int]] = [[] for _ in range(devices)]
    for tokens in prompts:
        min(groups, key=cost).append(tokens)
    return groups


def _fewest_prompts(prompts: Sequence[int], devices: int, cost: Cost) -> list[list[int]]:
    return longest_first(prompts, devices, len)


def _fewest_tokens(prompts: Sequence[int], devices: int, cost: Cost) -> list[list[int]]:
    return longest_first(prompts, devices, sum)


def _shortest_first(prompts: Sequence[int], devices: int, cost: Cost) -> list[list[int]]:
    groups: list[list[int]] = [[] for _ in range(devices)]
    for tokens in sorted(prompts):
        min(groups, key=cost).append(tokens)
    return groups


@exercise(
    "09.1",
    "Longest first, to the least busy device",
    hints=(
        "Sort the prompts, longest first. Then place one after the other.",
        "cost(group) is the work of a device that has those prompts so far; 0 for an empty one.",
        "for tokens in sorted(prompts, reverse=True): min(groups, key=cost).append(tokens)",
    ),
    solution=lambda: longest_first,
    wrong={
        "dealt out in turn": lambda: _dealt,
        "as they come": lambda: _as_they_come,
        "to the device with the fewest prompts": lambda: _fewest_prompts,
        "to the device with the fewest tokens": lambda: _fewest_tokens,
        "shortest first": lambda: _shortest_first,
    },
)
def lpt(answer: Any, probe: Probe) -> None:
    """answer(prompts, devices, cost) -> a list of prompt lengths per device."""
    cost = PrefillCost("varlen")
    probe.step("it is a function that gives a list per device")
    probe.function(answer, "longest_first")
    probe.equal(len(answer([6000, 2000], 2, cost)), 2, "the number of lists")
    probe.step("nothing is lost, nothing is doubled")
    prompts = [6000, 2000, 6000, 2000, 2000, 2000]
    groups = answer(list(prompts), 2, cost)
    probe.equal(sorted(tokens for group in groups for tokens in group), sorted(prompts), "all prompts together")
    probe.step("the example: a long prompt and two short ones on each device")
    probe.equal(_sorted(groups), [[2000, 2000, 6000]] * 2, "the two devices")
    for prompts, devices in (([9000, 1000, 5000, 5000, 3000, 8000, 1000], 3), ([7000, 5000, 5000, 1000, 500], 2)):
        probe.step(f"{len(prompts)} prompts on {devices} devices, as lab.cluster's lpt places them")
        want = place(prompts, devices, "lpt", cost)
        groups = answer(list(prompts), devices, cost)
        probe.equal(_sorted(groups), _sorted(want.assignment), f"longest_first({prompts}, {devices})")
    probe.step("the cost that is given counts, not the number of tokens: here it is a cost of 1 for each prompt")
    probe.equal(_sorted(answer([900, 10, 10, 10], 2, len)), [[10, 10], [10, 900]], "with cost=len")


def _sorted(groups: Any) -> list[list[int]]:
    return sorted(sorted(group) for group in groups)


#: Exercise 09.2: how much longer than the best split, and the prompts that count.
WORSE, FEWEST, MOST = 1.10, 4, 8


def lpt_against_best(prompts: Sequence[int]) -> tuple[Placement, Placement]:
    """Longest-first and the best split of `prompts` on two devices, variable-length kernel."""
    return place(list(prompts), 2, "lpt"), place(list(prompts), 2, "optimal")


@exercise(
    "09.2",
    "Prompts that longest-first places badly",
    hints=(
        "Think of works, not tokens: with works 3, 3, 2, 2, 2, what does longest-first do, and what is best?",
        "Longest-first puts one 3 on each device; the best split pairs them. Find lengths with such works.",
        "Work grows with the square: lengths 1732, 1732, 1414, 1414, 1414 have works in the ratio 3 : 3 : 2 : 2 : 2.",
    ),
    solution=lambda: [1732, 1732, 1414, 1414, 1414],
    wrong={
        "the example of the notebook": lambda: [6000, 2000, 6000, 2000, 2000, 2000],
        "lengths 3, 3, 2, 2, 2 (the work is squared)": lambda: [3000, 3000, 2000, 2000, 2000],
        "equal prompts": lambda: [2000] * 6,
        "too few": lambda: [3000, 2000],
        "not lengths": lambda: [1.5] * 5,
    },
)
def badly_placed(answer: Any, probe: Probe) -> None:
    """answer is a list of prompt lengths."""
    probe.step(f"it is a list of {FEWEST} to {MOST} prompt lengths from 100 to 20,000 tokens")
    sized = isinstance(answer, list | tuple) and FEWEST <= len(answer) <= MOST
    probe.true(sized and all(type(tokens) is int and 100 <= tokens <= 20_000 for tokens in answer), f"got {answer!r}")
    longest, best = lpt_against_best(answer)
    probe.step(f"longest-first is at least {WORSE - 1:.0%} longer than the best")
    ratio = longest.critical_path / best.critical_path
    probe.true(ratio >= WORSE, f"longest-first {longest.critical_path:,}, best {best.critical_path:,}: {ratio - 1:.1%}")


def next_up(waiting: list[Request], now: float, limit: float) -> Request:
    """A solution of 09.3."""
    late = [request for request in waiting if now - request.arrival_time >= limit]
    if late:
        return min(late, key=lambda request: request.arrival_time)
    return min(waiting, key=lambda request: (request.num_prompt, request.arrival_time))


def _shortest(waiting: list[Request], now: float, limit: float) -> Request:
    return min(waiting, key=lambda request: (request.num_prompt, request.arrival_time))


def _shortest_of_the_late(waiting: list[Request], now: float, limit: float) -> Request:
    late = [request for request in waiting if now - request.arrival_time >= limit]
    return _shortest(late or waiting, now, limit)


def _newest_of_the_late(waiting: list[Request], now: float, limit: float) -> Request:
    late = [request for request in waiting if now - request.arrival_time >= limit]
    return max(late, key=lambda request: request.arrival_time) if late else _shortest(waiting, now, limit)


def _absolute(waiting: list[Request], now: float, limit: float) -> Request:
    late = [request for request in waiting if request.arrival_time >= limit]
    return min(late, key=lambda request: request.arrival_time) if late else _shortest(waiting, now, limit)


def _made(*pairs: tuple[int, float]) -> list[Request]:
    return [Request(place, None, arrival_time=at, num_prompt=tokens) for place, (tokens, at) in enumerate(pairs)]


@exercise(
    "09.3",
    "Shortest first, until somebody has waited too long",
    hints=(
        "First collect those who have waited for `limit` seconds or longer: now - request.arrival_time.",
        "If there are any, the oldest of them goes next; otherwise the shortest prompt, the older of two equal.",
        "min(late, key=lambda r: r.arrival_time), else min(waiting, key=lambda r: (r.num_prompt, r.arrival_time))",
    ),
    solution=lambda: next_up,
    wrong={
        "shortest first, without a limit": lambda: _shortest,
        "first come, first served": lambda: lambda waiting, now, limit: min(waiting, key=lambda r: r.arrival_time),
        "the shortest of those who are late": lambda: _shortest_of_the_late,
        "the newest of those who are late": lambda: _newest_of_the_late,
        "arrival time taken for an age": lambda: _absolute,
    },
)
def aged_rule(answer: Any, probe: Probe) -> None:
    """answer(waiting, now, limit) -> the request that goes next."""
    probe.step("it is a function")
    probe.function(answer, "next_up")
    probe.step("nobody is late: the shortest prompt goes next")
    waiting = _made((90, 0.0), (20, 1.0), (50, 2.0))
    probe.true(
        answer(list(waiting), 3.0, 5.0) is waiting[1], "at 3 s, with a limit of 5 s, the prompt of 20 tokens is next"
    )
    probe.step("two prompts of the same length: the older one")
    twins = _made((30, 1.0), (30, 0.5))
    probe.true(answer(list(twins), 2.0, 5.0) is twins[1], "of two equal prompts the one that arrived first is next")
    probe.step("somebody has waited for exactly the limit: that one goes next, however long the prompt")
    probe.true(
        answer(list(waiting), 5.0, 5.0) is waiting[0], "at 5 s the prompt of 90 tokens, waiting since 0 s, is next"
    )
    probe.step("several are late: the oldest of them")
    probe.true(answer(list(waiting), 9.0, 5.0) is waiting[0], "at 9 s all are late; the one that came first is next")
    probe.step("in the engine: everybody is admitted in the order of lab.Aged('shortest-prompt', 5)")
    work = two_classes(60, rate=2.6, seed=3)
    ours, theirs = _run(work, NextRule(answer, 5.0)), _run(work, "aged:shortest-prompt:5s")
    probe.equal(_joins(ours.trace), _joins(theirs.trace), "the order of admission")


def _run(work: Workload, ordering: Any) -> Report:
    from lab.running import run

    return run(work, Priced(**PRICES), batching="continuous:4", ordering=ordering, blocks=2000)


def _joins(trace: RunTrace) -> list[int]:
    return [event.request for event in trace.events() if event.kind == "admitted"]


def overtaken(trace: RunTrace, limit: float) -> list[int]:
    """A solution of 09.4."""
    waiting: dict[int, float] = {}
    found = set()
    for event in trace.events():
        arrival = trace.requests[event.request].arrival_time
        if event.kind in ("arrived", "preempted"):
            waiting[event.request] = arrival
        elif event.kind == "admitted":
            del waiting[event.request]
            found |= {other for other, came in waiting.items() if came < arrival and event.time - came >= limit}
    return sorted(found)


def _without_preempted(trace: RunTrace, limit: float) -> list[int]:
    waiting: dict[int, float] = {}
    found = set()
    for event in trace.events():
        arrival = trace.requests[event.request].arrival_time
        if event.kind == "arrived":
            waiting[event.request] = arrival
        elif event.kind == "admitted":
            waiting.pop(event.request, None)
            found |= {other for other, came in waiting.items() if came < arrival and event.time - came >= limit}
    return sorted(found)


def _whoever_waited_long(trace: RunTrace, limit: float) -> list[int]:
    waiting: dict[int, float] = {}
    found = set()
    for event in trace.events():
        if event.kind in ("arrived", "preempted"):
            waiting[event.request] = trace.requests[event.request].arrival_time
        elif event.kind == "admitted" and event.time - waiting.pop(event.request) >= limit:
            found.add(event.request)
    return sorted(found)


def _any_overtaking(trace: RunTrace, limit: float) -> list[int]:
    return overtaken(trace, 0.0)


@exercise(
    "09.4",
    "Break it: an age that starts anew",
    hints=(
        "Walk through trace.events() and keep who waits: in with 'arrived' and 'preempted', out with 'admitted'.",
        "When somebody is admitted, look at who still waits: did they come earlier, and wait for the limit?",
        "found |= {other for other, came in waiting.items() if came < arrival and event.time - came >= limit}",
    ),
    solution=lambda: overtaken,
    wrong={
        "nobody": lambda: lambda trace, limit: [],
        "forgets those who were preempted": lambda: _without_preempted,
        "whoever waited long": lambda: _whoever_waited_long,
        "does not look at the limit": lambda: _any_overtaking,
        "everybody": lambda: lambda trace, limit: sorted(trace.requests),
    },
)
def starts_anew(answer: Any, probe: Probe) -> None:
    """answer(trace, limit) -> sorted ids of requests that were overtaken although they had waited for the limit."""
    probe.step("it is a function")
    probe.function(answer, "overtaken")
    for seed in (1, 2):
        probe.step(f"a healthy engine, traffic {seed}: nobody")
        probe.equal(answer(_pressed(seed, broken=False), 5.0), [], f"overtaken(healthy, traffic {seed})")
        probe.step(f"the broken engine, traffic {seed}: exactly those concerned")
        trace = _pressed(seed, broken=True)
        probe.equal(answer(trace, 5.0), overtaken(trace, 5.0), f"overtaken(broken, traffic {seed})")


#: The engine of exercise 09.4: so little memory that requests are preempted.
PRESSED = dict(batching="continuous:8", chunking="budget:128", ordering="aged:shortest-prompt:5s", blocks=50)


@cache
def _pressed(seed: int, broken: bool) -> RunTrace:
    plant = age_starts_anew if broken else lambda engine: None
    return run_planted(pressed_workload(seed=seed), Priced(**PRICES), plant, **PRESSED).trace
