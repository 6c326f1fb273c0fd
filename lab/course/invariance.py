"""Does a row of a batch depend on its neighbours? Two properties, measured on the model's logits.

Neighbour independence: same shapes, same blocks, other *contents* beside it: the row must not change by a bit.
Solo against batched: other shapes, so other orders of adding up: the row may change by a rounding error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lab.execution.inputs import build_inputs
from lab.plan import Row, StepPlan
from lab.request import Request


def last_logits(model: Any, prompts: Sequence[Sequence[int]], block_size: int = 16) -> Any:
    """Logits [row, vocabulary] after each prompt: all but the last tokens in one step, these in a decode step."""
    requests, first = [], 0
    for number, prompt in enumerate(prompts):
        blocks = -(-len(prompt) // block_size)
        requests.append(Request(number, list(prompt), block_table=list(range(first, first + blocks))))
        first += blocks
    runner = model.runner(first, block_size)
    runner.run(StepPlan([Row(request, 0, request.num_prompt - 1, samples=False) for request in requests]))
    decode = StepPlan([Row(request, request.num_prompt - 1, 1, samples=True) for request in requests])
    return model.forward(build_inputs(decode, block_size, first), runner.cache, runner.packed)


@dataclass(frozen=True, slots=True)
class Difference:
    """Largest difference of any logit of one row, and whether all bits are equal."""

    largest: float
    equal: bool
    same_choice: bool


def difference(left: Any, right: Any) -> Difference:
    """Of two rows of logits."""
    same = int(left.argmax()) == int(right.argmax())
    return Difference(float((left - right).abs().max()), bool(left.equal(right)), same)


def other_neighbours(model: Any, prompt: Sequence[int], neighbours: Sequence[Sequence[int]]) -> Difference:
    """The row of `prompt` beside `neighbours`, and beside others of the same lengths."""
    changed = [[(7 * token + 11) % 4000 + 5 for token in tokens] for tokens in neighbours]
    rows = [last_logits(model, [prompt, *others])[0] for others in (neighbours, changed)]
    return difference(*rows)


def solo_or_batched(model: Any, prompt: Sequence[int], neighbours: Sequence[Sequence[int]]) -> Difference:
    """The row of `prompt` alone, and in a batch."""
    return difference(last_logits(model, [prompt])[0], last_logits(model, [prompt, *neighbours])[0])


def margin(model: Any, prompt: Sequence[int]) -> float:
    """By how much the largest logit after `prompt` leads the second."""
    first, second = last_logits(model, [prompt])[0].topk(2).values.tolist()
    return first - second
