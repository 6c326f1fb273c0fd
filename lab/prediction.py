"""How long will a plan take? Policies that must know ask a prediction, fitted to the steps seen so far or given.

    seconds ≈ a + b·tokens + c·context       tokens   positions computed, padding included
                                             context  tokens computed before, whose keys and values are read

A linear law is a good local one: below a device's knee a step costs the reading of the weights (a), above it each
token costs its arithmetic (b), and attention reads the context (c). The quadratic part of long prompts is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, Protocol

from lab.errors import BadPolicy
from lab.plan import Row, StepPlan
from lab.trace import RowTrace, StepTrace


class Prediction(Protocol):
    """A plan in, seconds out; None while nothing is known. May have `observe(step)`, called at each commit."""

    def __call__(self, plan: StepPlan) -> float | None:
        """Seconds that `plan` will take."""
        ...


def features(rows: Iterable[Row | RowTrace]) -> tuple[float, float, float]:
    """(1, tokens, context) of a step."""
    tokens = context = 0
    for row in rows:
        tokens += row.num_tokens + row.padding
        context += row.start
    return 1.0, float(tokens), float(context)


class Linear:
    """The law with coefficients that are given: seconds, seconds per token, seconds per context token."""

    def __init__(self, step: float, token: float, context: float = 0.0):
        self.coefficients = (step, token, context)

    def __call__(self, plan: StepPlan) -> float:
        """a + b·tokens + c·context."""
        return sum(c * x for c, x in zip(self.coefficients, features(plan.rows), strict=True))


class Fitted:
    """The law fitted online: least squares over the steps seen, each weighing `forget` times the one after it.

    Coefficients are never negative: of all ways to leave some of them out, the one with the smallest error counts
    whose coefficients come out at 0 or more. Valid between the kinds of step it has seen; None before the first.
    """

    def __init__(self, forget: float = 0.99):
        if not 0 < forget <= 1:
            raise BadPolicy(f"a fit that weighs old steps by {forget}; it must be above 0 and at most 1")
        self.forget = forget
        self._products = [[0.0] * 3 for _ in range(3)]  # Σ x·xᵀ
        self._targets = [0.0] * 3  # Σ x·seconds
        self._coefficients: tuple[float, ...] | None = None

    def observe(self, step: StepTrace) -> None:
        """Take a step into the sums."""
        values, seconds = features(step.rows), step.end - step.start
        for i, x in enumerate(values):
            self._targets[i] = self.forget * self._targets[i] + x * seconds
            row = self._products[i]
            for j, y in enumerate(values):
                row[j] = self.forget * row[j] + x * y
        self._coefficients = None

    @property
    def coefficients(self) -> tuple[float, ...]:
        """(a, b, c), fitted when somebody asks."""
        if self._coefficients is None:
            self._coefficients = self._fit()
        return self._coefficients

    def __call__(self, plan: StepPlan) -> float | None:
        """a + b·tokens + c·context, or None before the first step."""
        if not self._products[0][0]:
            return None
        return sum(c * x for c, x in zip(self.coefficients, features(plan.rows), strict=True))

    def _fit(self) -> tuple[float, ...]:
        best, best_gain = (0.0, 0.0, 0.0), 0.0
        for chosen in [(1,), (0,), (2,), *combinations(range(3), 2), (0, 1, 2)]:
            matrix = [[self._products[i][j] for j in chosen] for i in chosen]
            found = _solve(matrix, [self._targets[i] for i in chosen])
            if found is None or min(found) < 0:
                continue
            gain = sum(c * self._targets[i] for c, i in zip(found, chosen, strict=True))  # explained Σ seconds²
            if gain > best_gain * (1 + 1e-9):
                filled = dict(zip(chosen, found, strict=True))
                best, best_gain = tuple(filled.get(i, 0.0) for i in range(3)), gain
        return best


def make_prediction(predict: Any, model: Any) -> Prediction:
    """ "fitted", "model" (for models with a price list), or a function of a plan that is one already."""
    if predict == "fitted":
        return Fitted()
    if predict == "model":
        price = getattr(model, "price", None)
        if not callable(price):
            raise BadPolicy(f"predict 'model': {model.name} has no price list; only priced models know their times")
        return price
    if not callable(predict):
        raise BadPolicy(f"predict {predict!r} is not known; there are fitted, model, or a function of a plan")
    return predict


def _solve(matrix: Sequence[list[float]], values: list[float]) -> list[float] | None:
    """Solve matrix·x = values, symmetric and positive; None where it is singular for all we can tell."""
    rows = [[*row, value] for row, value in zip(matrix, values, strict=True)]
    for i, pivot in enumerate(rows):
        if pivot[i] <= 1e-9 * matrix[i][i]:
            return None
        for below in rows[i + 1 :]:
            factor = below[i] / pivot[i]
            below[:] = [x - factor * y for x, y in zip(below, pivot, strict=True)]
    found: list[float] = []
    for i in range(len(rows) - 1, -1, -1):
        known = sum(x * y for x, y in zip(rows[i][i + 1 : -1], found, strict=True))
        found.insert(0, (rows[i][-1] - known) / rows[i][i])
    return found
