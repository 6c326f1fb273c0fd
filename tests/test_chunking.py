from __future__ import annotations

import math

import pytest

from lab.chunking import StepView, TokenBudget, WholePrompt
from lab.errors import BadPolicy

VIEW = StepView(0.0, [], [], None)


def test_budget_is_the_same_for_every_step() -> None:
    assert TokenBudget(7).budget(VIEW) == 7 and TokenBudget().budget(VIEW) == 256
    assert TokenBudget.prompts_first is False


def test_whole_prompts_know_no_limit() -> None:
    assert WholePrompt().budget(VIEW) is None and WholePrompt.prompts_first is True


@pytest.mark.parametrize("value", [0, -5])
def test_budget_must_be_at_least_one(value: int) -> None:
    with pytest.raises(BadPolicy, match=f"token budget of {value}; it must be at least 1"):
        TokenBudget(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, 2.5, "8", True])
def test_budget_must_be_a_whole_number(value: object) -> None:
    with pytest.raises(BadPolicy, match=str(value)):
        TokenBudget(value)
