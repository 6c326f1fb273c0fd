"""Checks of notebook 02: the rectangle, waiting for company, an order that wastes little, and rows that go on.

Written together with notebooks/instructor/source/02_static_batching.py, which calls them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.course.broken import run_planted
from lab.course.broken_batching import rows_go_on
from lab.course.checks import Probe, exercise
from lab.metrics import Report
from lab.simulation.priced import Priced
from lab.trace import RunTrace
from lab.workload import fixed_workload

PRICES = {"step": 0.040, "token": 0.002}
KINDS = ("useful", "prompt padding", "finished rows")


def _static(prompts: Sequence[int], outputs: Sequence[int], size: int | None = None) -> Report:
    from lab.running import run

    work = fixed_workload(list(prompts), list(outputs))
    return run(work, Priced(**PRICES), batching=f"static:{size or len(prompts)}")


def rectangle(prompts: Sequence[int], outputs: Sequence[int]) -> dict[str, int]:
    """A solution of 02.1."""
    return {
        "useful": sum(prompts) + sum(outputs) - len(prompts),
        "prompt padding": sum(max(prompts) - length for length in prompts),
        "finished rows": sum(max(outputs) - length for length in outputs),
    }


def counted(report: Report) -> dict[str, int]:
    """What the engine counted: the three kinds of positions it computed."""
    finished = report.wasted_slots  # one position per row and decode step
    values = (report.computed_tokens, report.padded_tokens - finished, finished)
    return dict(zip(KINDS, values, strict=True))


def _changed(**changes: Any) -> Any:
    """A wrong answer: the right one, with some counts worked out otherwise."""

    def answer(prompts: Sequence[int], outputs: Sequence[int]) -> dict[str, int]:
        return rectangle(prompts, outputs) | {
            name.replace("_", " "): work(prompts, outputs) for name, work in changes.items()
        }

    return answer


@exercise(
    "02.1",
    "The rectangle, counted",
    hints=(
        "The rectangle is as wide as the longest prompt, and then as long as the longest answer.",
        "A prompt of p tokens is padded by max(prompts) - p; a row with t outputs is carried max(outputs) - t times.",
        "Useful: each request computes p + t - 1 tokens, because nobody asks what follows the last one.",
    ),
    solution=lambda: rectangle,
    wrong={
        "the last token is computed too": lambda: _changed(useful=lambda p, t: sum(p) + sum(t)),
        "padded to the mean": lambda: _changed(prompt_padding=lambda p, t: sum(p) // len(p)),
        "padding of one row only": lambda: _changed(prompt_padding=lambda p, t: max(p) - min(p)),
        "nobody is carried": lambda: _changed(finished_rows=lambda p, t: 0),
        "swapped": lambda: (
            lambda p, t: {
                "useful": sum(p) + sum(t) - len(p),
                "prompt padding": sum(max(t) - x for x in t),
                "finished rows": sum(max(p) - x for x in p),
            }
        ),
    },
)
def the_rectangle(answer: Any, probe: Probe) -> None:
    """answer(prompts, outputs) -> {"useful": …, "prompt padding": …, "finished rows": …}."""
    probe.step("it is a function that returns a dict with the three names")
    probe.function(answer, "rectangle")
    got = answer([5, 5], [3, 3])
    names = ", ".join(f'"{kind}"' for kind in KINDS)
    probe.true(isinstance(got, dict) and set(got) == set(KINDS), f"it should return a dict with {names}")
    probe.step("equal requests fill their rectangle: nothing is wasted")
    probe.equal(got, rectangle([5, 5], [3, 3]), "rectangle([5, 5], [3, 3])")
    probe.step("prompts of different length are padded to the longest")
    probe.equal(answer([2, 9, 4], [3, 3, 3]), rectangle([2, 9, 4], [3, 3, 3]), "rectangle([2, 9, 4], [3, 3, 3])")
    probe.step("answers of different length: rows that have finished are carried to the end")
    probe.equal(answer([6, 6, 6], [1, 7, 4]), rectangle([6, 6, 6], [1, 7, 4]), "rectangle([6, 6, 6], [1, 7, 4])")
    probe.step("both at once, as the engine counts them")
    for prompts, outputs in (([3, 10, 6, 10], [8, 2, 5, 3]), ([31, 4, 17], [2, 20, 1]), ([12], [6])):
        engine = counted(_static(prompts, outputs))
        probe.equal(answer(prompts, outputs), engine, f"rectangle({prompts}, {outputs})")


def company(batch: int, rate: float) -> float:
    """A solution of 02.2."""
    return (batch - 1) / (2 * rate)


@exercise(
    "02.2",
    "Waiting for company",
    hints=(
        "The last of a batch waits for nobody; the first waits for all the others.",
        "Arrivals are 1 / rate seconds apart on average: of B requests, request k waits (B - k) / rate.",
        "The mean of 0, 1, …, B - 1 is (B - 1) / 2.",
    ),
    solution=lambda: company,
    wrong={
        "what the first one waits": lambda: lambda batch, rate: (batch - 1) / rate,
        "one too many": lambda: lambda batch, rate: batch / (2 * rate),
        "the whole batch": lambda: lambda batch, rate: batch / rate,
        "times the rate": lambda: lambda batch, rate: (batch - 1) * rate / 2,
        "whole seconds": lambda: lambda batch, rate: (batch - 1) // (2 * rate),
    },
)
def waiting_for_company(answer: Any, probe: Probe) -> None:
    """answer(batch, rate) -> mean seconds."""
    probe.step("it is a function")
    probe.function(answer, "company")
    probe.step("a batch of one waits for nobody")
    probe.close(answer(1, 3.0), 0.0, "company(1, 3.0)")
    probe.step("a batch of two at one request per second: one waits 1 s, the other 0 s")
    probe.close(answer(2, 1.0), 0.5, "company(2, 1.0)")
    probe.step("twice the rate, half the waiting; and batches of any size")
    for batch, rate in ((2, 2.0), (4, 1.0), (8, 0.5), (16, 3.0), (100, 40.0)):
        probe.close(answer(batch, rate), company(batch, rate), f"company({batch}, {rate})")


#: Exercise 02.3: sixteen requests that all wait, their prompts and their answers.
PROMPTS = (12, 96, 104, 10, 14, 99, 11, 13, 101, 97, 9, 103, 100, 15, 98, 12)
OUTPUTS = (62, 6, 64, 7, 60, 63, 5, 65, 8, 61, 6, 5, 66, 64, 7, 8)
MOST_USELESS = 0.10


def useless_share(order: Sequence[int]) -> float:
    """Share of useless positions when the sixteen requests are batched by fours, in this order."""
    report = _static([PROMPTS[i] for i in order], [OUTPUTS[i] for i in order], size=4)
    return report.padded_tokens / (report.padded_tokens + report.computed_tokens)


def _sorted_by(key: Any) -> list[int]:
    return sorted(range(16), key=key)


@exercise(
    "02.3",
    "An order that wastes little",
    hints=(
        "Sort by prompt alone, then by answer alone: what is left in each case?",
        "There are four kinds of requests here: short or long prompt, short or long answer. How many of each?",
        "sorted(range(16), key=lambda i: (PROMPTS[i] > 50, OUTPUTS[i]))",
    ),
    solution=lambda: _sorted_by(lambda i: (PROMPTS[i] > 50, OUTPUTS[i])),
    wrong={
        "as they came": lambda: list(range(16)),
        "by prompt": lambda: _sorted_by(lambda i: PROMPTS[i]),
        "by answer": lambda: _sorted_by(lambda i: OUTPUTS[i]),
        "by prompt, then by answer": lambda: _sorted_by(lambda i: (PROMPTS[i], OUTPUTS[i])),
        "short prompts beside long ones": lambda: _sorted_by(lambda i: OUTPUTS[i] > 30),
        "one request sixteen times": lambda: [0] * 16,
        "the lengths themselves": lambda: sorted(PROMPTS),
    },
)
def little_waste(answer: Any, probe: Probe) -> None:
    """answer is the numbers 0 to 15 in some order."""
    probe.step("it holds each of the numbers 0 to 15 once")
    numbers = isinstance(answer, list | tuple) and all(type(i) is int for i in answer)
    probe.true(numbers and sorted(answer) == list(range(16)), "give a list of the numbers 0 to 15, each once")
    probe.step(f"at most {MOST_USELESS:.0%} of the positions are useless")
    share = useless_share(answer)
    probe.true(share <= MOST_USELESS, f"in this order {share:.1%} of the positions are useless")


def after_the_end(trace: RunTrace) -> dict[int, int]:
    """A solution of 02.4."""
    sampled: dict[int, int] = {}
    for step in trace:
        for row in step.rows:
            sampled[row.request] = sampled.get(row.request, 0) + row.sampled
    extra = {request: count - trace.requests[request].max_tokens for request, count in sampled.items()}
    return {request: count for request, count in extra.items() if count > 0}


def _all_sampled(trace: RunTrace) -> dict[int, int]:
    """Forgets to take the wanted tokens off."""
    return {
        request: sum(row.sampled for step in trace for row in step.rows if row.request == request)
        for request in after_the_end(trace)
    }


def _carried(trace: RunTrace) -> dict[int, int]:
    """Counts rows that are carried along, which is what a healthy static engine does."""
    counts: dict[int, int] = {}
    for step in trace:
        for row in step.rows:
            if row.num_tokens == 0:
                counts[row.request] = counts.get(row.request, 0) + 1
    return counts


def _every_row(trace: RunTrace) -> dict[int, int]:
    """Counts rows, sampled or not."""
    counts: dict[int, int] = {}
    for step in trace:
        for row in step.rows:
            counts[row.request] = counts.get(row.request, 0) + 1
    extra = {request: count - trace.requests[request].max_tokens for request, count in counts.items()}
    return {request: count for request, count in extra.items() if count > 0}


@exercise(
    "02.4",
    "Break it: too good to be true",
    hints=(
        "An output token came out of a row where row.sampled is true. How many came out for each request?",
        "trace.requests[i].max_tokens is how many were asked for.",
        "Count row.sampled by row.request over all steps, take max_tokens off, keep what is above 0.",
    ),
    solution=lambda: after_the_end,
    wrong={
        "nobody": lambda: lambda trace: {},
        "everything that came out": lambda: _all_sampled,
        "rows carried along": lambda: _carried,
        "rows, sampled or not": lambda: _every_row,
        "one token each": lambda: lambda trace: dict.fromkeys(after_the_end(trace), 1),
        "also those without": lambda: lambda trace: dict.fromkeys(trace.requests, 0) | after_the_end(trace),
    },
)
def rows_after_their_end(answer: Any, probe: Probe) -> None:
    """answer(trace) -> {request: tokens it should never have got}."""
    probe.step("it is a function")
    probe.function(answer, "after_the_end")
    probe.step("a healthy engine: nobody gets more than was asked for")
    healthy = _static([4, 10, 25, 8], [6, 2, 9, 4])
    probe.equal(answer(healthy.trace), {}, "after_the_end(healthy)")
    for prompts, outputs, size in (([4, 10], [2, 7], 2), ([4, 10, 25, 3, 8, 8, 31], [6, 2, 9, 9, 1, 4, 3], 3)):
        probe.step(f"the broken engine, {len(prompts)} requests in batches of {size}")
        work = fixed_workload(prompts, outputs)
        report = run_planted(work, Priced(**PRICES), rows_go_on, batching=f"static:{size}", blocks=64)
        probe.equal(answer(report.trace), after_the_end(report.trace), "after_the_end(broken)")
