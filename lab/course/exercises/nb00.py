"""Checks of notebook 00: who waits longer, how far a batch may grow, and a broken promise.

Written together with notebooks/instructor/source/00_start.py, which calls them.
"""

from __future__ import annotations

from typing import Any

from lab.course.broken import one_too_many, run_planted
from lab.course.checks import Probe, exercise
from lab.engine import Engine
from lab.metrics import Report
from lab.simulation.priced import Priced
from lab.workload import fixed_workload

#: The price list and the limit of exercise 00.2.
PRICES = {"step": 0.040, "token": 0.002}
EIGHT = fixed_workload([30] * 8, [12, 40, 8, 33, 25, 18, 40, 29])
TPOT_LIMIT = 0.055


def waits_longer(alone: dict[int, float], together: dict[int, float]) -> list[int]:
    """A solution of 00.1."""
    return [request for request in alone if together[request] > alone[request]]


def _their_seconds(alone: dict[int, float], together: dict[int, float]) -> list[float]:
    return [together[request] for request in waits_longer(alone, together)]


def _their_places(alone: dict[int, float], together: dict[int, float]) -> list[int]:
    return [place for place, request in enumerate(alone) if together[request] > alone[request]]


@exercise(
    "00.1",
    "Who waits longer?",
    hints=(
        "Go through the requests one by one and compare two numbers for each.",
        "A request belongs in the list when together[request] > alone[request].",
        "return [request for request in alone if ...]",
    ),
    solution=lambda: waits_longer,
    wrong={
        "the other way round": lambda: lambda alone, together: waits_longer(together, alone),
        "everybody": lambda: lambda alone, together: list(alone),
        "nobody": lambda: lambda alone, together: [],
        "the seconds instead of the request": lambda: _their_seconds,
        "places instead of ids": lambda: _their_places,
        "or equal": lambda: lambda alone, together: [i for i in alone if together[i] >= alone[i]],
    },
)
def who_waits(answer: Any, probe: Probe) -> None:
    """answer(alone, together) -> list of requests."""
    probe.step("it is a function")
    probe.function(answer, "waits_longer")
    probe.step("one request slower, one faster")
    alone, together = {0: 1.0, 1: 2.0}, {0: 1.2, 1: 1.5}
    probe.equal(answer(dict(alone), dict(together)), [0], f"waits_longer({alone}, {together})")
    probe.step("nobody is slower: an empty list")
    probe.equal(answer({0: 1.0, 1: 2.0}, {0: 0.9, 1: 2.0}), [], "waits_longer({0: 1.0, 1: 2.0}, {0: 0.9, 1: 2.0})")
    probe.step("ids that do not start at 0")
    alone, together = {7: 3.0, 9: 4.0, 12: 5.0}, {7: 2.0, 9: 4.5, 12: 5.5}
    probe.equal(answer(dict(alone), dict(together)), [9, 12], f"waits_longer({alone}, {together})")


def slowest_tpot(max_running: int) -> float:
    """Seconds per output token of the slowest of the eight requests of exercise 00.2."""
    from lab.running import run

    report = run(EIGHT, Priced(**PRICES), batching=f"continuous:{max_running}")
    return max(times.tpot or 0.0 for times in report.times.values())


def largest_batch() -> int:
    """The answer to 00.2, found by trying all of them."""
    return max(size for size in range(1, 9) if slowest_tpot(size) <= TPOT_LIMIT)


@exercise(
    "00.2",
    "The largest batch within a limit",
    hints=(
        "Run the cell above it for max_running = 1, 2, 3, … and watch the slowest time per output token.",
        f"The limit is {1000 * TPOT_LIMIT:.0f} ms. Which is the last max_running that stays at or below it?",
        "for max_running in range(1, 9): the first line of that cell then shows you all eight at once.",
    ),
    solution=largest_batch,
    wrong={
        "one too few": lambda: largest_batch() - 1,
        "one too many": lambda: largest_batch() + 1,
        "all eight": lambda: 8,
    },
)
def batch_within_limit(answer: Any, probe: Probe) -> None:
    """answer is a whole number from 1 to 8."""
    probe.step("it is a whole number from 1 to 8")
    probe.true(type(answer) in (int, float) and answer in range(1, 9), "max_running is a whole number from 1 to 8")
    size = int(answer)
    probe.step("the slowest request stays within the limit")
    slowest = f"{1000 * slowest_tpot(size):.1f} ms per token, more than {1000 * TPOT_LIMIT:.0f} ms"
    probe.true(slowest_tpot(size) <= TPOT_LIMIT, f"with max_running {size} the slowest request needs {slowest}")
    probe.step("no larger batch does")
    probe.true(size == largest_batch(), f"{size} is within the limit, but so is a larger one")


def over_limit(report: Report) -> list[int]:
    """A solution of 00.3."""
    requests = report.trace.requests
    return [i for i, times in report.times.items() if len(times.tokens) > requests[i].max_tokens]


def _under_limit(report: Report) -> list[int]:
    return [i for i, times in report.times.items() if len(times.tokens) < report.trace.requests[i].max_tokens]


def _at_limit(report: Report) -> list[int]:
    return [i for i, times in report.times.items() if len(times.tokens) >= report.trace.requests[i].max_tokens]


def _some_too_many(unlucky: set[int]) -> Report:
    """A run in which only the `unlucky` requests get one token too many."""

    def plant(engine: Engine) -> None:
        healthy = engine._stop_reason
        one_too_many(engine)
        sick = engine._stop_reason
        engine._stop_reason = lambda request, token: (sick if request.id in unlucky else healthy)(request, token)

    work = fixed_workload([10, 12, 14, 9, 20], [3, 5, 1, 8, 2])
    return run_planted(work, Priced(), plant, batching="continuous:3", blocks=64)


@exercise(
    "00.3",
    "Break it: a promise not kept",
    hints=(
        "report.times[i].tokens has one entry per output token of request i: len() counts them.",
        "What was asked for is in report.trace.requests[i].max_tokens.",
        "return [i for i, times in report.times.items() if len(times.tokens) > ...]",
    ),
    solution=lambda: over_limit,
    wrong={
        "everybody": lambda: lambda report: list(report.times),
        "nobody": lambda: lambda report: [],
        "too few tokens instead": lambda: _under_limit,
        "at the limit counts too": lambda: _at_limit,
        "a limit of its own": lambda: lambda report: [i for i, t in report.times.items() if len(t.tokens) > 3],
    },
)
def broken_promise(answer: Any, probe: Probe) -> None:
    """answer(report) -> list of request ids."""
    probe.step("it is a function")
    probe.function(answer, "over_limit")
    probe.step("a healthy engine: nobody gets too many tokens")
    probe.equal(answer(_some_too_many(set())), [], "over_limit(healthy)")
    probe.step("only the requests concerned are named")
    for unlucky in ({1}, {0, 3, 4}, {2}):
        probe.equal(
            sorted(answer(_some_too_many(unlucky))), sorted(unlucky), f"over_limit(a run where {unlucky} are over)"
        )
    probe.step("the broken engine of this notebook")
    probe.equal(sorted(answer(_some_too_many({0, 1, 2, 3, 4}))), [0, 1, 2, 3, 4], "over_limit(broken)")
