"""The chunking axis: HOW MANY prompt tokens enter a step?

`WholePrompt` is the honest "before": prompts are computed whole and first, and every decode waits for them.
`TokenBudget` mixes: decodes first, then chunks of prompts until the budget is full (Sarathi-Serve, OSDI'24).
`SlackBudget` chooses the budget anew for each step, by what the decodes can wait (Niyama, arXiv 2503.22562).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from lab.errors import BadPolicy
from lab.numbers import real, whole
from lab.plan import Row, StepPlan
from lab.request import Request


@dataclass(slots=True)
class StepView:
    """What a chunking policy may see before a step is filled."""

    now: float
    decodes: Sequence[Request]  # running requests with one token to compute
    prompts: Sequence[Request]  # running requests with more than one token to compute, in admission order
    predict: Callable[[StepPlan], float | None]  # predicted seconds of a plan, None while nothing is known
    waiting: int = 0  # requests that may be admitted and begin in this step


class Chunking(Protocol):
    """One policy; `budget` is asked once per step. `steady` (true): it never changes, see `Batching`."""

    name: str
    prompts_first: bool  # True: a step that computes prompts contains no decodes

    def budget(self, view: StepView) -> int | None:
        """Most tokens this step may compute, None for no limit."""
        ...


class WholePrompt:
    """Prompts enter whole and before any decode. Decodes of running requests stall meanwhile.

    The longest gap between two tokens of a request is then the time of all the prompts that came in between (what
    vLLM did before chunked prefill, "prefill first"). Kept as the honest "before".
    """

    name = "whole"
    prompts_first = True
    steady = True

    def budget(self, view: StepView) -> int | None:
        """No limit: a step is as long as the prompts that wait."""
        return None


class TokenBudget:
    """At most `max_tokens` tokens per step: one for each decode, the rest for chunks of prompts.

    As long as no more than `max_tokens` requests run, none stalls: the gap between two tokens of a request that is
    not preempted is the time of one step, at most that of a full one at its context. Sarathi-Serve (OSDI'24) uses
    512 where the limit on the gap is strict and 2,048 where it is relaxed; smaller chunks read the keys and values
    of a prompt's beginning more often.
    """

    name = "budget"
    prompts_first = False
    steady = True

    def __init__(self, max_tokens: int = 256):
        self.max_tokens = whole(max_tokens, "a token budget of")

    def budget(self, view: StepView) -> int | None:
        """The same budget for every step."""
        return self.max_tokens


class SlackBudget:
    """The largest chunk with which the step is over before the tightest decode is due.

        due   = time of the first token (or its deadline, if later) + `tbt` · tokens generated so far
        slack = the smallest due - now of all decodes
        chunk = the largest multiple of `least`, up to `most`, with margin · predicted seconds ≤ slack

    `tbt` is the wanted time between tokens in seconds. A request that is ahead of its schedule has slack to give,
    and prompts get larger chunks than a fixed budget could allow (Niyama, arXiv 2503.22562, QoServe at ASPLOS'26:
    margin 1.2, sizes 128 to 2,552). A chunk of `least` tokens is computed even where no slack is left, so prompts
    make progress; `most` where nothing decodes, and `least` while the prediction knows nothing. As good as the
    prediction: with a wrong one, tokens come late.
    """

    name = "slack"
    paces_tokens = True  # needs to know when users get them: makes no sense with batch delivery
    prompts_first = False

    def __init__(self, tbt: float = 0.1, most: int = 2048, least: int = 16, margin: float = 1.2):
        for value, what in ((tbt, "seconds between tokens of"), (margin, "a margin of")):
            if real(value, f"slack chunking with {what}") == 0:
                raise BadPolicy(f"slack chunking with {what} 0; it must be above 0")
        whole(least, "slack chunking with a smallest chunk of")
        whole(most, "slack chunking with a largest chunk of", least)
        self.tbt, self.most, self.least, self.margin = tbt, most, least, margin

    def budget(self, view: StepView) -> int | None:
        """One token for each decode, plus the chunk."""
        return len(view.decodes) + self.chunk(view)

    def chunk(self, view: StepView) -> int:
        """The largest multiple of `least` that fits the slack, by bisection: a larger chunk never ends sooner."""
        slack = min((self.due(request) for request in view.decodes), default=inf) - view.now
        if slack == inf or not (view.prompts or view.waiting):
            return self.most
        decodes = [Row(request, request.num_computed, 1, samples=True) for request in view.decodes]
        fits, too_many = 1, self.most // self.least + 1
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            seconds = view.predict(StepPlan(decodes + chunks(view.prompts, middle * self.least)))
            if seconds is not None and self.margin * seconds <= slack:
                fits = middle
            else:
                too_many = middle
        return fits * self.least

    def due(self, request: Request) -> float:
        """When the next token of a decoding request is due; infinity where no time is known to count from."""
        known = [time for time in (request.first_token_time, request.deadline) if time is not None]
        return max(known, default=inf) + self.tbt * request.num_output


def chunks(prompts: Sequence[Request], tokens: int) -> list[Row]:
    """Deal `tokens` out to `prompts` in order; what is left stands for a prompt that waits and is not yet known."""
    rows = []
    for request in prompts:
        count = min(tokens, request.remaining)
        if count:
            rows.append(Row(request, request.num_computed, count, samples=count == request.remaining))
        tokens -= count
    if tokens:
        rows.append(Row(Request(-1, None, num_prompt=tokens), 0, tokens, samples=False))
    return rows
