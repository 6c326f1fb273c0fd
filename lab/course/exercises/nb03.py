"""Checks of notebook 03: the start rule, a counter-example, traffic for which a timer pays, and a broken promise.

Written together with notebooks/instructor/source/03_dynamic_batching.py, which calls them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from lab.course.broken import run_planted
from lab.course.broken_batching import timer_starts_again
from lab.course.checks import Probe, exercise
from lab.course.delays import serve
from lab.course.starting import StartRule
from lab.course.traffic import one_pass
from lab.metrics import Report
from lab.simulation.priced import Priced
from lab.trace import RunTrace
from lab.workload import fixed_workload

PRICES = {"step": 0.020, "token": 0.0002}
CHAT_PRICES = {"step": 0.040, "token": 0.002}
DELAY = 0.002


def start_now(waiting: int, running: int, waited: float, max_batch: int, delay: float) -> int:
    """A solution of 03.1."""
    if running:
        return 0
    if waiting >= max_batch or waited >= delay:
        return min(waiting, max_batch)
    return 0


def _some_arrivals(seed: int = 0, count: int = 60) -> list[float]:
    """Arrivals at rates that change, so that each clause of the rule matters."""
    draw, now, times = random.Random(seed), 0.0, []
    for _ in range(count):
        times.append(now)
        now += draw.expovariate(draw.choice([15.0, 400.0, 3000.0]))
    return times


def _admitted(trace: RunTrace) -> list[tuple[int, int]]:
    """(step, request) of every admission."""
    return [(step.index, event.request) for step in trace for event in step.events if event.kind == "admitted"]


def _with(batching: Any, arrivals: Sequence[float]) -> Report:
    from lab.running import run

    return run(one_pass(arrivals), Priced(**PRICES), batching=batching)


@exercise(
    "03.1",
    "When does a batch start?",
    hints=(
        "While a batch runs, nobody starts, whatever the timer says.",
        "It starts when enough wait (waiting >= max_batch), or when the oldest has waited enough (waited >= delay).",
        "if running: 0; if either holds: min(waiting, max_batch); otherwise 0.",
    ),
    solution=lambda: start_now,
    wrong={
        "joins a running batch": lambda: lambda w, r, t, most, d: min(w, most) if w >= most or t >= d else 0,
        "the size only": lambda: lambda w, r, t, most, d: most if not r and w >= most else 0,
        "the timer only": lambda: lambda w, r, t, most, d: min(w, most) if not r and t >= d else 0,
        "both instead of either": lambda: (
            lambda w, r, t, most, d: min(w, most) if not r and w >= most and t >= d else 0
        ),
        "more than fit": lambda: lambda w, r, t, most, d: w if not r and (w >= most or t >= d) else 0,
        "just after the timer": lambda: lambda w, r, t, most, d: min(w, most) if not r and (w >= most or t > d) else 0,
        "never waits": lambda: lambda w, r, t, most, d: 0 if r else min(w, most),
    },
)
def the_start_rule(answer: Any, probe: Probe) -> None:
    """answer(waiting, running, waited, max_batch, delay) -> how many start now."""
    probe.step("it is a function")
    probe.function(answer, "start_now")
    cases = (
        ("a full batch starts at once", [(8, 0, 0.0), (8, 0, 0.001)]),
        ("more than a batch: as many as fit", [(20, 0, 0.0)]),
        ("neither full nor old enough: wait", [(3, 0, 0.0), (3, 0, 0.0019), (1, 0, 0.0)]),
        ("the oldest has waited the delay: all that wait start", [(3, 0, 0.002), (1, 0, 0.002), (5, 0, 7.0)]),
        ("a batch runs: nobody starts, not even a full batch that is late", [(3, 2, 0.5), (9, 1, 0.0), (9, 8, 7.0)]),
    )
    for name, views in cases:
        probe.step(name)
        for waiting, running, waited in views:
            wanted = start_now(waiting, running, waited, 8, DELAY)
            got = answer(waiting, running, waited, 8, DELAY)
            probe.equal(got, wanted, f"start_now({waiting}, {running}, {waited}, 8, 0.002)")
    probe.step("in the engine: everybody starts in the same step as with lab.Dynamic")
    arrivals = _some_arrivals()
    ours, theirs = _with(StartRule(answer, 4, DELAY), arrivals), _with(f"dynamic:4:{DELAY}", arrivals)
    probe.equal(_admitted(ours.trace), _admitted(theirs.trace), "the list of (step, request) that start")


#: Exercise 03.2: a wait that counts, and the answers that are written meanwhile.
LONG_WAIT, CHAT_OUTPUT = 1.0, 25


def longest_wait(arrivals: Sequence[float]) -> float:
    """Longest queueing in seconds: answers of 25 tokens, dynamic batches of 8 with a delay of 2 ms."""
    from lab.running import run

    count = len(arrivals)
    work = fixed_workload([20] * count, [CHAT_OUTPUT] * count, list(arrivals))
    report = run(work, Priced(**CHAT_PRICES), batching=f"dynamic:8:{DELAY}")
    return max(times.admitted - times.arrival for times in report.times.values())


def _times(values: Any, least: int, most: int, within: float) -> bool:
    """A list of that many arrival times."""
    right = isinstance(values, list | tuple) and least <= len(values) <= most
    return right and all(type(v) in (int, float) and 0 <= v <= within for v in values)


@exercise(
    "03.2",
    "A wait of a second behind a timer of two milliseconds",
    hints=(
        "What is the engine doing in the second after it has started a batch?",
        "A request that comes just after a batch has started waits until that batch ends.",
        "[0.0, 0.003]: the first starts after 2 ms, the second comes a millisecond later.",
    ),
    solution=lambda: [0.0, 0.003],
    wrong={
        "all together": lambda: [0.0, 0.0, 0.0],
        "within the timer": lambda: [0.0, 0.001, 0.0015],
        "far apart": lambda: [0.0, 5.0, 9.0],
        "too late to wait long": lambda: [0.0, 0.9],
        "a crowd": lambda: [0.0] * 30,
        "before the beginning": lambda: [-1.0, 0.0, 0.003],
    },
)
def counter_example(answer: Any, probe: Probe) -> None:
    """answer is up to three arrival times."""
    probe.step("it is a list of two or three arrival times, within 10 seconds")
    probe.true(_times(answer, 2, 3, 10.0), "give [seconds, seconds] or three of them, none negative")
    probe.step(f"one of them waits longer than {LONG_WAIT:g} s")
    wait = longest_wait(answer)
    probe.true(wait > LONG_WAIT, f"the longest wait is {wait:.3f} s")


#: Exercise 03.3: how much shorter the mean latency must be with a timer.
WANTED_GAIN = 0.10


def with_and_without(arrivals: Sequence[float], delay: float) -> tuple[float, float]:
    """Mean latency in seconds with a timer of `delay` seconds, and without, for one-pass requests."""
    with_timer = serve(arrivals, Priced(**PRICES), f"fixed:{delay}", most=8).e2e_s.mean
    return with_timer, serve(arrivals, Priced(**PRICES), "greedy", most=8).e2e_s.mean


@exercise(
    "03.3",
    "Traffic for which a timer pays",
    hints=(
        "Without a timer the first request takes the engine for itself. When is that a bad deal for the others?",
        "When the others come a moment later. Let requests come in clumps of a few milliseconds.",
        "arrivals = [0.5 * k + 0.001 * i for k in range(8) for i in range(4)] and a delay of 0.005",
    ),
    solution=lambda: ([0.5 * k + 0.001 * i for k in range(8) for i in range(4)], 0.005),
    wrong={
        "clumps, but no timer": lambda: ([0.5 * k + 0.001 * i for k in range(8) for i in range(4)], 0.0),
        "a timer shorter than the gaps": lambda: (
            [0.5 * k + 0.001 * i for k in range(8) for i in range(4)],
            0.0005,
        ),
        "a timer that is too long": lambda: ([0.5 * k + 0.001 * i for k in range(8) for i in range(4)], 0.040),
        "all at the same time": lambda: ([0.0] * 32, 0.005),
        "evenly spaced": lambda: ([0.3 * i for i in range(32)], 0.005),
        "a handful of requests": lambda: ([0.0, 0.001, 0.002, 0.003], 0.005),
        "a delay of a second": lambda: ([0.5 * k + 0.001 * i for k in range(8) for i in range(4)], 1.0),
    },
)
def where_a_timer_pays(answer: Any, probe: Probe) -> None:
    """answer is (arrivals, delay)."""
    probe.step("it is a pair: 24 to 200 arrival times within 10 seconds, and a delay in seconds")
    probe.true(isinstance(answer, tuple | list) and len(answer) == 2, "give (arrivals, delay)")
    arrivals, delay = answer
    probe.true(_times(arrivals, 24, 200, 10.0), "24 to 200 arrival times, none negative, none above 10")
    probe.step("the delay is between 0 and 50 ms")
    probe.true(type(delay) in (int, float) and 0 < delay <= 0.050, f"the delay is {delay!r}")
    probe.step(f"with it the mean latency is at least {WANTED_GAIN:.0%} shorter than without")
    ours, greedy = with_and_without(arrivals, delay)
    told = f"{1000 * ours:.1f} ms with the timer, {1000 * greedy:.1f} ms without"
    probe.true(ours <= (1 - WANTED_GAIN) * greedy, told)


def broken_promises(report: Report, delay: float) -> list[int]:
    """A solution of 03.4."""
    found = []
    for times in report.times.values():
        fires = times.arrival + delay
        busy = any(step.start <= fires <= step.end for step in report.trace)
        if times.admitted > fires + 1e-6 and not busy:
            found.append(times.id)
    return found


def _late(report: Report, delay: float) -> list[int]:
    """Everybody who waited longer than the delay, for whatever reason."""
    return [times.id for times in report.times.values() if times.admitted > times.arrival + delay + 1e-6]


def _at_arrival(report: Report, delay: float) -> list[int]:
    """Looks whether a batch ran when the request came, not when its timer fired."""
    late = set(_late(report, delay))
    return [
        times.id
        for times in report.times.values()
        if times.id in late and not any(step.start <= times.arrival <= step.end for step in report.trace)
    ]


def _idle(report: Report, delay: float) -> list[int]:
    """Everybody whose timer fires while nobody runs, late or not."""
    return [
        times.id
        for times in report.times.values()
        if not any(step.start <= times.arrival + delay <= step.end for step in report.trace)
    ]


def _chat(plant: Any, arrivals: Sequence[float], size: int, step: float = 0.003) -> Report:
    """Answers of several steps, with or without the bug."""
    from lab.running import run

    work = fixed_workload([8] * len(arrivals), [1 + i % 4 for i in range(len(arrivals))], list(arrivals))
    prices, batching = Priced(step=step, token=0.00005), f"dynamic:{size}:{DELAY}"
    return run_planted(work, prices, plant, batching=batching) if plant else run(work, prices, batching=batching)


@exercise(
    "03.4",
    "Break it: a promise that is not kept",
    hints=(
        "report.times[i] has arrival and admitted; the timer of request i fires at arrival + delay.",
        "The engine was busy at that moment when step.start <= moment <= step.end for one of the steps.",
        "Collect times.id where admitted > arrival + delay + 1e-6 and no step was running at arrival + delay.",
    ),
    solution=lambda: broken_promises,
    wrong={
        "nobody": lambda: lambda report, delay: [],
        "everybody who waited longer": lambda: _late,
        "busy at the arrival": lambda: _at_arrival,
        "idle at the timer, late or not": lambda: _idle,
        "everybody": lambda: lambda report, delay: list(report.times),
        "only the first": lambda: lambda report, delay: broken_promises(report, delay)[:1],
    },
)
def kept_or_broken(answer: Any, probe: Probe) -> None:
    """answer(report, delay) -> list of request ids."""
    probe.step("it is a function")
    probe.function(answer, "broken_promises")
    for seed, size, step in ((1, 4, 0.003), (2, 8, 0.003), (3, 2, 0.0002)):
        arrivals = _some_arrivals(seed, 80)
        name = f"batches of {size}, steps of {1000 * step:g} ms"
        probe.step(f"healthy, {name}: some wait longer than 2 ms, and no promise is broken")
        probe.equal(answer(_chat(None, arrivals, size, step), DELAY), [], "broken_promises(healthy, 0.002)")
        probe.step(f"the broken engine, {name}: exactly the requests concerned")
        report = _chat(timer_starts_again, arrivals, size, step)
        probe.equal(answer(report, DELAY), broken_promises(report, DELAY), "broken_promises(broken, 0.002)")
