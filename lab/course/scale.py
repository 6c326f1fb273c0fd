"""Single steps on machines of other sizes, for notebook 11 and the cells "the same on an H100" of earlier ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lab.errors import BadPolicy
from lab.numbers import whole
from lab.plan import Row, StepPlan
from lab.request import Request
from lab.simulation.twins import plan_of
from lab.trace import RunTrace
from lab.workload import Workload

LARGEST = 1 << 16  # no knee is looked for beyond so many requests


def decode_plan(batch: int, context: int = 1) -> StepPlan:
    """One decode step: `batch` requests, each with one new token that sees `context` tokens, itself included."""
    whole(batch, "a decode step for")
    whole(context, "a context of")
    rows = [Row(Request(i, None, num_prompt=context), context - 1, 1, samples=True) for i in range(batch)]
    return StepPlan(rows)


def prompt_plan(tokens: int, start: int = 0) -> StepPlan:
    """One step that computes `tokens` tokens of a prompt after `start` that are there already, and samples."""
    whole(tokens, "a prompt of")
    return StepPlan([Row(Request(0, None, num_prompt=start + tokens), start, tokens, samples=True)])


def decode_seconds(model: Any, batch: int, context: int = 1) -> float:
    """Seconds that a priced model asks for such a decode step."""
    return model.price(decode_plan(batch, context))


def knee(model: Any, context: int = 1) -> int:
    """Requests from which on a decode step takes at least twice as long as the step for one.

    Raises BadPolicy where no batch does: then steps cost nothing or the same for any batch.
    """
    twice = 2 * decode_seconds(model, 1, context) * (1 - 1e-9)  # no rounding decides
    low, high = 1, 2
    while decode_seconds(model, high, context) < twice:
        low, high = high, 2 * high
        if high > LARGEST:
            raise BadPolicy(
                f"{model.name}: a decode step for {LARGEST:,} takes less than twice one for a single request"
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if decode_seconds(model, middle, context) < twice else (low, middle)
    return high


def first_requests(work: Workload, count: int) -> Workload:
    """The first `count` requests of a workload."""
    return replace(work, specs=work.specs[: whole(count, "a workload of")])


def priced_again(trace: RunTrace, price: Callable[[StepPlan], float]) -> list[tuple[float, float, int]]:
    """(seconds it took, seconds `price` asks for, tokens in it) of every step of a run."""
    return [(step.end - step.start, price(plan_of(step)), sum(row.num_tokens for row in step.rows)) for step in trace]
