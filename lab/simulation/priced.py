"""The smallest price list: a step costs a fixed time plus a time per token. For tests and checked cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.numbers import real
from lab.plan import StepPlan, StepResult
from lab.request import Request


@dataclass(slots=True)
class PricedRunner:
    """Charges `price(plan)` seconds. With an inner runner the tokens are real, without one there are none."""

    price: Callable[[StepPlan], float]
    inner: Any = None
    same_price: bool = False  # whoever made the price promises that a step that repeats costs the same each time

    @property
    def stretches(self) -> bool:
        """Steps that repeat can be charged at once."""
        return self.same_price and self.inner is None

    def check(self, request: Request) -> None:
        """Raise BadRequest for what the inner runner could never compute."""
        if hasattr(self.inner, "check"):
            self.inner.check(request)

    def run(self, plan: StepPlan) -> StepResult:
        """Compute (or skip) the plan and report the modelled seconds."""
        if self.inner is None:
            nothing: list[None] = [None] * len(plan.rows)
            seconds = self.price(plan)
            if plan.repeat == 1:
                return StepResult(list(nothing), list(nothing), seconds, modelled=True)
            ends = repeated(seconds, plan.repeat, plan.until)
            return StepResult(list(nothing), list(nothing), ends[-1], modelled=True, ends=ends)
        result = self.inner.run(plan)
        return StepResult(result.tokens, result.margins, self.price(plan), modelled=True)


def repeated(seconds: float, most: int, until: float | None) -> list[float]:
    """Ends of up to `most` equal steps, the last of them the first that ends at `until` or later."""
    ends, now = [], 0.0
    for _ in range(most):
        now += seconds
        ends.append(now)
        if until is not None and now >= until:
            break
    return ends


@dataclass(slots=True)
class Priced:
    """A model whose steps cost `step + token × (tokens, padding included)` seconds on the virtual clock.

    `Priced(model)` computes real tokens and charges modelled time; `Priced()` only charges, for workloads whose
    prompts are ids or lengths.
    """

    model: Any = None
    step: float = 0.020
    token: float = 0.001
    name: str = field(init=False, default="priced")
    eos_token_ids: frozenset[int] = field(init=False, default=frozenset())
    max_context: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        real(self.step, "a price per step (s) of")
        real(self.token, "a price per token (s) of")
        if self.model is not None:
            self.name = f"{self.model.name} (priced)"
            self.eos_token_ids, self.max_context = self.model.eos_token_ids, self.model.max_context

    def price(self, plan: StepPlan) -> float:
        """Seconds of one step: every row of the rectangle is paid for, padding like tokens."""
        return self.step + self.token * (plan.num_tokens + plan.num_padding)

    def encode_chat(self, messages: str | Sequence[dict[str, str]]) -> list[int]:
        """Tokens of a chat; without a model, one per four characters, equal where the characters are."""
        if self.model is not None:
            return self.model.encode_chat(messages)
        turns = [messages] if isinstance(messages, str) else [f"{turn['role']}: {turn['content']}" for turn in messages]
        text = "\n".join(turns).encode()
        return [int.from_bytes(text[start : start + 4]) for start in range(0, max(1, len(text) - 3), 4)]

    def runner(self, num_blocks: int, block_size: int, **options: Any) -> PricedRunner:
        """A runner over `num_blocks` blocks of `block_size` tokens."""
        inner = None if self.model is None else self.model.runner(num_blocks, block_size, **options)
        return PricedRunner(self.price, inner, same_price=type(self).price is Priced.price)
