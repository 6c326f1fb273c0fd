"""The chunking axis: HOW MANY prompt tokens enter a step?

`WholePrompt` is the honest "before": prompts are computed whole and first, and every decode waits for them.
`TokenBudget` mixes: decodes first, then chunks of prompts until the budget is full (Sarathi-Serve, OSDI'24).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lab.errors import BadPolicy
from lab.plan import StepPlan
from lab.request import Request


@dataclass(slots=True)
class StepView:
    """What a chunking policy may see before a step is filled."""

    now: float
    decodes: Sequence[Request]  # running requests with one token to compute
    prompts: Sequence[Request]  # running requests with more than one token to compute, in admission order
    predict: Callable[[StepPlan], float] | None  # predicted seconds of a plan, None while nothing is known


class Chunking(Protocol):
    """One policy; `budget` is asked once per step."""

    name: str
    prompts_first: bool  # True: a step that computes prompts contains no decodes

    def budget(self, view: StepView) -> int | None:
        """Most tokens this step may compute, None for no limit."""
        ...


class WholePrompt:
    """Prompts enter whole and before any decode. Decodes of running requests stall meanwhile."""

    name = "whole"
    prompts_first = True

    def budget(self, view: StepView) -> int | None:
        """No limit: a step is as long as the prompts that wait."""
        return None


class TokenBudget:
    """At most `max_tokens` tokens per step: one for each decode, the rest for chunks of prompts."""

    name = "budget"
    prompts_first = False

    def __init__(self, max_tokens: int = 256):
        if max_tokens < 1:
            raise BadPolicy(f"a token budget of {max_tokens}; it must be at least 1")
        self.max_tokens = max_tokens

    def budget(self, view: StepView) -> int | None:
        """The same budget for every step."""
        return self.max_tokens
