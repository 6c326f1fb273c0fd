"""A step-by-step model of chunked prefill in which the learner's own rule deals out the budget (exercise 07.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lab.errors import BadPolicy
from lab.trace import RunTrace

Rule = Callable[[int, list[int]], list[int]]
MOST_STEPS = 10_000


def deal_all(rule: Rule, budget: int, prompts: Sequence[int], outputs: Sequence[int]) -> list[dict[int, int]]:
    """All requests run from the start; `rule(budget, remaining)` shares out every step. {request: tokens} per step.

    `remaining` holds, for each request that still runs, the tokens to compute before its next one comes: its whole
    prompt at first, later 1. Raises BadPolicy where a rule gives what cannot be computed, or nothing at all.
    """
    remaining, left, steps = list(prompts), list(outputs), []
    while any(left):
        running = [request for request, tokens in enumerate(left) if tokens]
        counts = list(rule(budget, [remaining[request] for request in running]))
        _check(counts, [remaining[request] for request in running], budget, len(steps))
        step = {request: count for request, count in zip(running, counts, strict=True) if count}
        for request, count in step.items():
            remaining[request] -= count
            if not remaining[request]:
                left[request] -= 1
                remaining[request] = 1
        steps.append(step)
    return steps


def _check(counts: list[int], remaining: list[int], budget: int, step: int) -> None:
    fits = len(counts) == len(remaining) and all(
        type(count) is int and 0 <= count <= most for count, most in zip(counts, remaining, strict=True)
    )
    if not fits or sum(counts) > budget:
        raise BadPolicy(f"step {step}: {counts} of {remaining} with a budget of {budget} cannot be computed")
    if not sum(counts) or step >= MOST_STEPS:
        raise BadPolicy(f"step {step}: {remaining} tokens remain and none is computed: it would never end")


def longest_pause(steps: Sequence[dict[int, int]], prompts: Sequence[int]) -> int:
    """Most steps between two tokens of one request; 1 is no pause at all."""
    done, last, longest = [0] * len(prompts), {}, 1
    for index, step in enumerate(steps):
        for request, count in step.items():
            done[request] += count
            if done[request] >= prompts[request]:
                longest = max(longest, index - last.get(request, index))
                last[request] = index
    return longest


def dealt(trace: RunTrace) -> list[dict[int, int]]:
    """The same record of what an engine did."""
    return [{row.request: row.num_tokens for row in step.rows if row.num_tokens} for step in trace]
