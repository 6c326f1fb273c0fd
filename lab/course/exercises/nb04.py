"""Checks of notebook 04: the joining rule, where waste comes from, traffic without a winner, and a stuck flag.

Written together with notebooks/instructor/source/04_continuous_batching.py, which calls them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.course.broken import latched_full, run_planted
from lab.course.checks import Probe, exercise
from lab.course.joining import JoiningRule
from lab.metrics import Report
from lab.simulation.priced import Priced
from lab.trace import RunTrace
from lab.workload import fixed_workload

PRICES = {"step": 0.040, "token": 0.002}
LENGTHS = [4, 30, 9, 17, 40, 6, 22, 12, 35, 5, 28, 14]
ARRIVALS = [0.0, 0.1, 0.15, 0.2, 0.6, 0.7, 0.72, 0.9, 1.4, 1.5, 2.5, 9.0]


def may_join(waiting: int, running: int, max_running: int) -> int:
    """A solution of 04.1."""
    return max(0, min(waiting, max_running - running))


def _run(batching: Any, arrivals: Sequence[float] = ARRIVALS) -> Report:
    from lab.running import run

    return run(fixed_workload([12] * 12, LENGTHS, arrivals), Priced(**PRICES), batching=batching)


def _joins(trace: RunTrace) -> list[tuple[int, int]]:
    """(step, request) of every admission."""
    return [(step.index, event.request) for step in trace for event in step.events if event.kind == "admitted"]


@exercise(
    "04.1",
    "Who may join this step?",
    hints=(
        "Seats are free when fewer requests run than may run.",
        "max_running - running seats are free; nobody can take one who does not wait.",
        "The smaller of waiting and max_running - running. It is never negative: max(0, …).",
    ),
    solution=lambda: may_join,
    wrong={
        "everybody who waits": lambda: lambda waiting, running, most: waiting,
        "one per step": lambda: lambda waiting, running, most: max(0, min(1, waiting, most - running)),
        "static: only into an empty batch": lambda: lambda waiting, running, most: 0 if running else min(waiting, most),
        "one seat kept free": lambda: lambda waiting, running, most: min(waiting, max(0, most - running - 1)),
        "always a full batch": lambda: lambda waiting, running, most: most,
        "a negative number": lambda: lambda waiting, running, most: min(waiting, most - running),
    },
)
def joining_rule(answer: Any, probe: Probe) -> None:
    """answer(waiting, running, max_running) -> how many join now."""
    probe.step("it is a function")
    probe.function(answer, "may_join")
    probe.step("an empty engine takes everybody who waits, up to max_running")
    for waiting in (1, 3, 8, 20):
        probe.equal(answer(waiting, 0, 8), min(8, waiting), f"may_join({waiting}, 0, 8)")
    probe.step("a batch with one free seat takes one, without waiting for the others to end")
    probe.equal(answer(5, 7, 8), 1, "may_join(5, 7, 8)")
    probe.step("a full batch takes nobody")
    probe.equal(answer(5, 8, 8), 0, "may_join(5, 8, 8)")
    probe.step("nor does one that is over-full, because max_running was lowered a moment ago")
    probe.equal(answer(5, 8, 4), 0, "may_join(5, 8, 4)")
    probe.step("in the engine: everybody joins in the same step as with lab.Continuous")
    ours, theirs = _run(JoiningRule(answer, 4)), _run("continuous:4")
    probe.equal(_joins(ours.trace), _joins(theirs.trace), "the list of (step, request) that join")


def waste(trace: RunTrace) -> dict[str, int]:
    """A solution of 04.2."""
    prompts = finished = 0
    for step in trace:
        for row in step.rows:
            if row.num_tokens == 0:
                finished += row.padding
            else:
                prompts += row.padding
    return {"prompt padding": prompts, "finished rows": finished}


def _waste_run(prompts: list[int], outputs: list[int], **options: Any) -> RunTrace:
    from lab.running import run

    return run(fixed_workload(prompts, outputs), Priced(), **options).trace


def _all_in_one_pot(trace: RunTrace) -> dict[str, int]:
    return {"prompt padding": sum(step.padded for step in trace), "finished rows": 0}


def _swapped(trace: RunTrace) -> dict[str, int]:
    right = waste(trace)
    return {"prompt padding": right["finished rows"], "finished rows": right["prompt padding"]}


def _padded_rows(trace: RunTrace) -> dict[str, int]:
    prompts = sum(row.padding > 0 and row.num_tokens > 0 for step in trace for row in step.rows)
    return {"prompt padding": prompts, "finished rows": sum(step.carried for step in trace)}


@exercise(
    "04.2",
    "Two kinds of waste, counted",
    hints=(
        "Each step has rows; each row has num_tokens (wanted) and padding (thrown away).",
        "A row with num_tokens == 0 belongs to a request that has finished: its padding is the second kind.",
        "Two loops: for step in trace, for row in step.rows; add row.padding to one of two sums.",
    ),
    solution=lambda: waste,
    wrong={
        "all in one pot": lambda: _all_in_one_pot,
        "swapped": lambda: _swapped,
        "rows instead of tokens": lambda: _padded_rows,
        "nothing is wasted": lambda: lambda trace: {"prompt padding": 0, "finished rows": 0},
    },
)
def two_wastes(answer: Any, probe: Probe) -> None:
    """answer(trace) -> {"prompt padding": tokens, "finished rows": tokens}."""
    probe.step("it is a function that returns a dict with the two names")
    probe.function(answer, "waste")
    got = answer(_waste_run([10] * 4, [6] * 4, batching="static:4"))
    named = isinstance(got, dict) and set(got) == {"prompt padding", "finished rows"}
    probe.true(named, 'it should return {"prompt padding": …, "finished rows": …}')
    probe.step("equal prompts, equal answers: nothing is wasted")
    probe.equal(got, {"prompt padding": 0, "finished rows": 0}, "waste(equal requests)")
    probe.step("prompts of different length: only prompt padding")
    uneven = _waste_run([4, 10], [6, 6], batching="static:2")
    probe.equal(answer(uneven), {"prompt padding": 6, "finished rows": 0}, "waste(prompts of 4 and 10 tokens)")
    probe.step("answers of different length: only finished rows")
    tails = _waste_run([10, 10], [2, 7], batching="static:2")
    probe.equal(answer(tails), {"prompt padding": 0, "finished rows": 5}, "waste(answers of 2 and 7 tokens)")
    probe.step("both at once, in several batches")
    both = _waste_run([4, 10, 25, 3, 8, 8, 31], [6, 2, 9, 9, 1, 4, 3], batching="static:3")
    probe.equal(answer(both), waste(both), "waste(a mixed run)")
    probe.step("continuous batching: nothing is wasted")
    packed = _waste_run([4, 10, 25], [6, 2, 9], batching="continuous:2")
    probe.equal(answer(packed), {"prompt padding": 0, "finished rows": 0}, "waste(continuous)")


#: Exercise 04.3: "as good as" means at most this much longer; answers must have some length.
CLOSE, SHORTEST_MEAN = 1.02, 10


def seconds_both(outputs: Sequence[int], arrivals: Sequence[float]) -> tuple[float, float]:
    """Virtual seconds of static and continuous batching in batches of 8, for prompts of 20 tokens."""
    from lab.running import run

    work = fixed_workload([20] * len(outputs), list(outputs), list(arrivals))
    static, continuous = (run(work, Priced(**PRICES), batching=name) for name in ("static:8", "continuous:8"))
    return static.duration_s, continuous.duration_s


def _sixteen(values: Any, *kinds: type) -> bool:
    return isinstance(values, list | tuple) and len(values) == 16 and all(type(v) in kinds and v >= 0 for v in values)


@exercise(
    "04.3",
    "Traffic for which it makes no difference",
    hints=(
        "Continuous batching wins when somebody finishes early, or arrives late. Take both away.",
        "Sixteen answers of the same length fill two batches of eight without a gap. When must they arrive?",
        "outputs = [32] * 16 and arrivals = [0.0] * 16",
    ),
    solution=lambda: ([32] * 16, [0.0] * 16),
    wrong={
        "equal answers that trickle in": lambda: ([32] * 16, [0.3 * i for i in range(16)]),
        "all at once, but uneven": lambda: ([8, 56] * 8, [0.0] * 16),
        "answers of one token": lambda: ([1] * 16, [0.0] * 16),
        "too few requests": lambda: ([32] * 4, [0.0] * 4),
        "negative times": lambda: ([32] * 16, [-1.0] * 16),
    },
)
def no_winner(answer: Any, probe: Probe) -> None:
    """answer is (outputs, arrivals): 16 numbers each."""
    probe.step("it is a pair: 16 output lengths and 16 arrival times")
    probe.true(isinstance(answer, tuple | list) and len(answer) == 2, "give (outputs, arrivals)")
    outputs, arrivals = answer
    lists = _sixteen(outputs, int) and _sixteen(arrivals, int, float)
    probe.true(lists, "two lists of 16 numbers, none negative, lengths whole")
    probe.step(f"the answers have {SHORTEST_MEAN} to 200 tokens on average")
    mean = sum(outputs) / 16
    probe.true(min(outputs) >= 1 and SHORTEST_MEAN <= mean <= 200, f"on average they have {mean:.1f} tokens")
    probe.step("everybody has arrived within 10 seconds")
    probe.true(max(arrivals) <= 10, f"the last one arrives at {max(arrivals):.1f} s")
    probe.step(f"static batching needs at most {100 * (CLOSE - 1):.0f} % longer")
    static, continuous = seconds_both(outputs, arrivals)
    probe.true(static <= CLOSE * continuous, f"static {static:.2f} s, continuous {continuous:.2f} s (virtual)")


def idle_seats(trace: RunTrace, max_running: int) -> list[int]:
    """A solution of 04.4."""
    found, steps = [], list(trace)
    for before, step in zip(steps, steps[1:], strict=False):
        room = before.running < max_running and before.waiting > 0
        if room and not any(event.kind == "admitted" for event in step.events):
            found.append(step.index)
    return found


def _nobody_admitted(trace: RunTrace, max_running: int) -> list[int]:
    """Forgets that somebody has to wait for it to matter."""
    steps = list(trace)
    return [
        step.index
        for before, step in zip(steps, steps[1:], strict=False)
        if before.running < max_running and not any(event.kind == "admitted" for event in step.events)
    ]


def _room_only(trace: RunTrace, max_running: int) -> list[int]:
    """Does not look at who joins."""
    return [step.index for step in trace if step.waiting and step.running < max_running]


@exercise(
    "04.4",
    "Break it: a seat is free, somebody waits, nobody joins",
    hints=(
        "Compare each step with the one before it: before.running and before.waiting are counted after that step.",
        'Somebody joins a step when one of its events has kind "admitted".',
        "for before, step in zip(steps, steps[1:]): was there room, did somebody wait, did anybody join?",
    ),
    solution=lambda: idle_seats,
    wrong={
        "no step at all": lambda: lambda trace, most: [],
        "free seats, but nobody waits": lambda: _nobody_admitted,
        "does not look at who joins": lambda: _room_only,
        "every step": lambda: lambda trace, most: [step.index for step in trace],
        "only the first": lambda: lambda trace, most: idle_seats(trace, most)[:1],
    },
)
def stuck_flag(answer: Any, probe: Probe) -> None:
    """answer(trace, max_running) -> list of step indices."""
    probe.step("it is a function")
    probe.function(answer, "idle_seats")
    work = fixed_workload([12] * 12, LENGTHS, ARRIVALS)
    for size in (3, 4):
        probe.step(f"healthy continuous batching of {size}: no such step")
        probe.equal(answer(_run(f"continuous:{size}").trace, size), [], f"idle_seats(healthy, {size})")
        probe.step(f"the broken engine of {size}: exactly the steps concerned")
        trace = run_planted(work, Priced(**PRICES), latched_full, batching=f"continuous:{size}").trace
        probe.equal(answer(trace, size), idle_seats(trace, size), f"idle_seats(broken, {size})")
    probe.step("another policy, where one joins per step: seats stay free for a while, but nobody is forgotten")
    trace = _run(
        JoiningRule(lambda waiting, running, most: max(0, min(1, waiting, most - running)), 4), [0.0] * 12
    ).trace
    probe.equal(answer(trace, 4), idle_seats(trace, 4), "idle_seats(one per step, 4)")
