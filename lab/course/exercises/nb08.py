"""Checks of notebook 08: an order with ageing, a verdict on two answers, a fair order, and prompts matched in part.

Written together with notebooks/instructor/source/08_cache_aware_scheduling.py, which calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lab.axes import parse
from lab.course.broken import run_planted
from lab.course.broken_memory import matches_the_first_chunk
from lab.course.checks import Probe, exercise
from lab.course.families import families, found
from lab.course.order_rule import OrderRule, Waiting
from lab.metrics import Report
from lab.simulation.priced import Priced
from lab.trace import RunTrace
from lab.workload import fixed_workload


def aged_order(waiting: Sequence[Waiting], now: float, limit: float) -> list[int]:
    """A solution of 08.1."""
    old = [request for request in waiting if now - request.arrival >= limit]
    young = [request for request in waiting if now - request.arrival < limit]
    old.sort(key=lambda request: (request.arrival, request.id))
    young.sort(key=lambda request: (-request.cached, request.arrival, request.id))
    return [request.id for request in old + young]


def _sorted(key: Callable[[Waiting], Any]) -> list[int]:
    return lambda waiting, now, limit: [request.id for request in sorted(waiting, key=key)]  # type: ignore[return-value]


def _aged(old_key: Any, young_key: Any) -> Any:
    def answer(waiting: Sequence[Waiting], now: float, limit: float) -> list[int]:
        keys = {True: old_key, False: young_key}
        rank = [(now - r.arrival < limit, keys[now - r.arrival >= limit](r), r.id) for r in waiting]
        return [id for *_, id in sorted(rank)]

    return answer


QUEUES = (
    (Waiting(0, 0.0, 0), Waiting(1, 1.0, 64), Waiting(2, 2.0, 128), Waiting(3, 2.5, 64)),
    (Waiting(4, 0.5, 16), Waiting(7, 0.5, 16), Waiting(5, 0.25, 16), Waiting(6, 3.0, 0)),
    (Waiting(9, 0.0, 0), Waiting(8, 0.0, 320)),
)


def chosen(rule: Any, limit: float) -> list[int]:
    """In which order the engine admits a stream with one stranger, by that rule."""
    from lab.running import run

    prompts = [(*range(64), 500 + i) for i in range(20)]
    prompts.insert(3, tuple(range(900, 965)))
    work = fixed_workload(prompts, [2] * 21, [0.1 * i for i in range(21)])
    order = OrderRule(lambda waiting, now: rule(waiting, now, limit))
    report = run(work, Priced(step=0.04, token=0.002), ordering=order, prefix_cache="radix", batching="continuous:1")
    return [event.request for event in report.trace.events() if event.kind == "admitted"]


@exercise(
    "08.1",
    "Longest prefix first, with a limit",
    hints=(
        "Two groups: those who have waited at least `limit` seconds, and all others. The first group goes first.",
        "The old ones by arrival; the others by cached tokens, more first, then by arrival, then by id.",
        "sorted(young, key=lambda r: (-r.cached, r.arrival, r.id))",
    ),
    solution=lambda: aged_order,
    wrong={
        "no limit": lambda: _sorted(lambda r: (-r.cached, r.arrival, r.id)),
        "first come, first served": lambda: _sorted(lambda r: (r.arrival, r.id)),
        "fewest cached first": lambda: _aged(lambda r: (r.arrival, r.id), lambda r: (r.cached, r.arrival, r.id)),
        "the old ones by cached tokens": lambda: _aged(
            lambda r: (-r.cached, r.arrival), lambda r: (-r.cached, r.arrival, r.id)
        ),
        "ties by the latest": lambda: _aged(lambda r: (r.arrival, r.id), lambda r: (-r.cached, -r.arrival, -r.id)),
    },
)
def aged_prefix(answer: Any, probe: Probe) -> None:
    """answer(waiting, now, limit) -> ids in order."""
    probe.step("it is a function that returns every id once")
    probe.function(answer, "aged_order")
    got = answer(list(QUEUES[0]), 3.0, 100.0)
    probe.true(isinstance(got, list) and sorted(got) == [0, 1, 2, 3], "return a list with the ids 0 to 3")
    probe.step("nobody is old: most cached tokens first, ties by arrival")
    probe.equal(got, [2, 1, 3, 0], "the order at 3.0 s with a limit of 100 s")
    probe.step("those over the limit go first, oldest first")
    probe.equal(answer(list(QUEUES[0]), 3.0, 2.0), [0, 1, 2, 3], "the order at 3.0 s with a limit of 2 s")
    probe.step("other queues, other limits")
    for queue in QUEUES:
        for now, limit in ((3.0, 2.5), (3.0, 0.5), (4.0, 1.0), (9.0, 0.1)):
            want = aged_order(queue, now, limit)
            probe.equal(answer(list(queue), now, limit), want, f"the order of {len(queue)} at {now} s, limit {limit} s")
    probe.step("in the engine: the stranger in a stream is admitted as by the lab's own")
    for limit in (0.3, 100.0):
        probe.equal(chosen(answer, limit), chosen(aged_order, limit), f"who is admitted, with a limit of {limit} s")


def verdict(reference: Sequence[int], other: Sequence[int], margins: Sequence[float], tolerance: float) -> str:
    """A solution of 08.2."""
    for place, (ours, theirs) in enumerate(zip(reference, other, strict=False)):
        if ours != theirs:
            return "tie" if margins[place] < tolerance else "no"
    return "yes" if len(reference) == len(other) else "no"


def _any_margin(reference: Any, other: Any, margins: Any, tolerance: float) -> str:
    same = list(reference) == list(other)
    return "yes" if same else "tie" if min(margins) < tolerance else "no"


def _last_difference(reference: Any, other: Any, margins: Any, tolerance: float) -> str:
    places = [i for i, (a, b) in enumerate(zip(reference, other, strict=False)) if a != b]
    if not places:
        return "yes" if len(reference) == len(other) else "no"
    return "tie" if margins[places[-1]] < tolerance else "no"


CASES = (
    ([5, 6, 7], [5, 6, 7], [0.5, 1e-9, 0.5]),
    ([5, 6, 7], [5, 9, 8], [0.5, 1e-4, 0.5]),
    ([5, 6, 7], [5, 9, 7], [1e-4, 0.5, 1e-4]),
    ([5, 6, 7], [9, 6, 7], [1e-4, 0.5, 0.5]),
    ([5, 6, 7], [5, 8, 9], [0.5, 0.5, 1e-4]),
    ([5, 6, 7], [5, 6], [0.5, 0.5, 0.5]),
    ([5, 6, 7, 8], [5, 1, 2, 3], [0.9, 1.9e-3, 2.5, 3.0]),
)


@exercise(
    "08.2",
    "Yes, tie or no",
    hints=(
        "Only the first difference counts: everything after it answers another beginning.",
        "At the first difference, margins[place] says how far the best choice was ahead of the second.",
        'Below the tolerance it is a "tie", else "no". Without a difference it is "yes" if the lengths are equal.',
    ),
    solution=lambda: verdict,
    wrong={
        "equal or not": lambda: lambda ref, other, margins, t: "yes" if list(ref) == list(other) else "no",
        "any small margin will do": lambda: _any_margin,
        "the last difference": lambda: _last_difference,
        "every difference is a tie": lambda: (
            lambda ref, other, margins, t: "yes" if list(ref) == list(other) else "tie"
        ),
        "the other way round": lambda: (
            lambda ref, other, m, t: {"yes": "yes", "tie": "no", "no": "tie"}[verdict(ref, other, m, t)]
        ),
    },
)
def yes_tie_no(answer: Any, probe: Probe) -> None:
    """answer(reference, other, margins, tolerance) -> "yes", "tie" or "no"."""
    probe.step("it is a function")
    probe.function(answer, "verdict")
    probe.step("equal answers are equal, whatever the margins")
    probe.equal(answer(*CASES[0], 2e-3), "yes", f"verdict{CASES[0]}")
    probe.step("the first difference decides")
    for case in CASES[1:5]:
        probe.equal(answer(*case, 2e-3), verdict(*case, 2e-3), f"verdict{case}")
    probe.step("an answer that ends early is no tie")
    probe.equal(answer(*CASES[5], 2e-3), "no", f"verdict{CASES[5]}")
    probe.step("and the tolerance is the one that is given")
    for tolerance in (1e-3, 2e-3, 1.0):
        probe.equal(answer(*CASES[6], tolerance), verdict(*CASES[6], tolerance), f"verdict(…, {tolerance})")


#: Exercise 08.3: what an order must reach on this traffic with four seats and 100 blocks.
LEAST_FOUND, LONGEST_WAIT = 0.70, 9.3


def with_order(order: str) -> Report:
    """96 requests of ten families, four seats, 100 blocks, in that order."""
    from lab.running import run

    options = {"prefix_cache": "radix", "blocks": 100, "batching": "continuous:4"}
    return run(families(), Priced(step=0.020, token=0.001), ordering=order, **options)


def longest_wait(report: Report) -> float:
    """The longest time to a first token, in seconds."""
    return max(times.ttft for times in report.times.values())


@exercise(
    "08.3",
    "An order that is fair enough",
    hints=(
        "k-lpm:1 is first come, first served; a large k is longest prefix first. What lies between?",
        "Try k-lpm:4, k-lpm:8, k-lpm:16 and look at both numbers.",
        'Between k-lpm:6 and k-lpm:16 there is one: try "k-lpm:8".',
    ),
    solution=lambda: "k-lpm:8",
    wrong={
        "first come, first served": lambda: "fcfs",
        "longest prefix first": lambda: "longest-prefix",
        "response ratio": lambda: "hrrn",
        "k too small": lambda: "k-lpm:2",
        "no order at all": lambda: "fairest",
    },
)
def fair_enough(answer: Any, probe: Probe) -> None:
    """answer is the spec of an order."""
    probe.step("it is the name of an order, for example k-lpm:4")
    probe.true(isinstance(answer, str), "give a text such as 'k-lpm:4'")
    parse("ordering", answer)
    probe.step(f"at least {LEAST_FOUND:.0%} of the prompt tokens come from the cache")
    report = with_order(answer)
    probe.true(found(report) >= LEAST_FOUND, f"with {answer} it is {found(report):.1%}")
    probe.step(f"nobody waits longer than {LONGEST_WAIT} s for a first token")
    wait = longest_wait(report)
    probe.true(wait <= LONGEST_WAIT, f"with {answer} somebody waits {wait:.2f} s")


def common(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens two prompts have in common at their beginning."""
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def missed(trace: RunTrace, prompts: dict[int, Sequence[int]], block_size: int) -> list[int]:
    """A solution of 08.4."""
    found, done = [], []
    for event in trace.events():
        if event.kind == "admitted":
            prompt = prompts[event.request]
            best = max((common(prompt, prompts[other]) for other in done), default=0)
            if event.value < min(best, len(prompt) - 1) // block_size * block_size:
                found.append(event.request)
        elif event.kind == "finished":
            done.append(event.request)
    return found


def _no_hit(trace: RunTrace, prompts: Any, size: int) -> list[int]:
    return [event.request for event in trace.events() if event.kind == "admitted" and not event.value]


def _token_by_token(trace: RunTrace, prompts: Any, size: int) -> list[int]:
    done, out = [], []
    for event in trace.events():
        if event.kind == "admitted":
            prompt = prompts[event.request]
            if event.value < max((common(prompt, prompts[other]) for other in done), default=0):
                out.append(event.request)
        elif event.kind == "finished":
            done.append(event.request)
    return out


def _only_the_last(trace: RunTrace, prompts: Any, size: int) -> list[int]:
    last, out = None, []
    for event in trace.events():
        if event.kind == "admitted":
            prompt = prompts[event.request]
            best = common(prompt, prompts[last]) if last is not None else 0
            if event.value < min(best, len(prompt) - 1) // size * size:
                out.append(event.request)
        elif event.kind == "finished":
            last = event.request
    return out


def long_family() -> dict[int, tuple[int, ...]]:
    """Prompts that share up to 200 tokens, and some that share little or nothing."""
    base, other = tuple(range(200)), tuple(range(1000, 1100))
    lengths = (200, 200, 20, 150, 100, 200)
    prompts = [(*base[:length], *range(5000 + 50 * i, 5030 + 50 * i)) for i, length in enumerate(lengths)]
    prompts[3:3] = [other, (*other[:40], *range(7000, 7030)), other]
    return dict(enumerate(prompts))


def one_by_one(prompts: dict[int, tuple[int, ...]], plant: Any = None, chunk: int = 64) -> Report:
    """One request at a time with a cache that never has to forget, healthy or broken."""
    work = fixed_workload(list(prompts.values()), [2] * len(prompts))
    options = {"prefix_cache": "radix", "batching": "continuous:1", "chunking": f"budget:{chunk}", "blocks": 300}
    return run_planted(work, Priced(step=0.020, token=0.001), plant or (lambda engine: None), **options)


@exercise(
    "08.4",
    "Break it: only the beginning is found",
    hints=(
        "Walk over trace.events(): keep the requests that have finished; at each admission compare with them.",
        "The cache could have given the longest common beginning with any finished prompt, in whole blocks, at most "
        "len(prompt) - 1 tokens.",
        "best = max((common(prompt, prompts[other]) for other in done), default=0); compare event.value with "
        "min(best, len(prompt) - 1) // block_size * block_size",
    ),
    solution=lambda: missed,
    wrong={
        "nobody": lambda: lambda trace, prompts, size: [],
        "everybody without a hit": lambda: _no_hit,
        "token by token": lambda: _token_by_token,
        "only the last one finished": lambda: _only_the_last,
        "only the first": lambda: lambda trace, prompts, size: missed(trace, prompts, size)[:1],
    },
)
def first_chunk(answer: Any, probe: Probe) -> None:
    """answer(trace, prompts, block_size) -> list of request ids."""
    probe.step("it is a function")
    probe.function(answer, "missed")
    prompts = long_family()
    for chunk in (64, 256):
        probe.step(f"a healthy engine, chunks of {chunk}: nobody")
        probe.equal(
            answer(one_by_one(prompts, chunk=chunk).trace, prompts, 16), [], f"missed(healthy, chunks of {chunk})"
        )
    for chunk in (32, 64):
        probe.step(f"the broken engine, chunks of {chunk}: exactly those concerned")
        trace = one_by_one(prompts, matches_the_first_chunk, chunk).trace
        probe.equal(answer(trace, prompts, 16), missed(trace, prompts, 16), f"missed(broken, chunks of {chunk})")
