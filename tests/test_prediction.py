from __future__ import annotations

import random

import pytest

from lab.errors import BadPolicy
from lab.plan import Row, StepPlan
from lab.prediction import Fitted, Linear, features, make_prediction
from lab.request import Request
from lab.simulation.priced import Priced
from lab.trace import RowTrace, StepTrace

REQUEST = Request(0, None, num_prompt=10_000)


def plan(*rows: tuple[int, int]) -> StepPlan:
    """Rows of (start, tokens)."""
    return StepPlan([Row(REQUEST, start, tokens, samples=True) for start, tokens in rows])


def step(seconds: float, *rows: tuple[int, int], padding: int = 0) -> StepTrace:
    traced = [RowTrace(0, start, tokens, padding, True) for start, tokens in rows]
    return StepTrace(0, 5.0, 5.0 + seconds, "packed", traced, [], 0, 0, 0, 0, 0)


def random_rows(draw: random.Random) -> list[tuple[int, int]]:
    rows = [(draw.randint(1, 900), 1) for _ in range(draw.randint(0, 12))]
    return rows + [(draw.choice([0, 256, 512]), draw.randint(1, 256)) for _ in range(draw.randint(0, 2))] or [(0, 5)]


def test_features_count_padding_as_tokens_and_what_was_computed_before_as_context() -> None:
    assert features(step(1.0, (100, 1), (0, 20), padding=3).rows) == (1.0, 27.0, 100.0)
    assert features(plan((100, 1), (0, 20)).rows) == (1.0, 21.0, 100.0)


def test_nothing_is_known_before_the_first_step() -> None:
    fitted = Fitted()
    assert fitted(plan((0, 5))) is None
    fitted.observe(step(0.5, (0, 50)))
    assert fitted(plan((0, 10))) == pytest.approx(0.1)  # all of it put down to the tokens


@pytest.mark.parametrize("law", [(0.02, 0.001, 0.00002), (0.0, 0.001, 0.0), (0.03, 0.0, 0.00001), (0.05, 0.0, 0.0)])
def test_the_law_behind_the_steps_is_found(law: tuple[float, float, float]) -> None:
    draw, fitted, truth = random.Random(5), Fitted(), Linear(*law)
    for _ in range(60):
        rows = random_rows(draw)
        fitted.observe(step(truth(plan(*rows)), *rows))
    for _ in range(20):
        rows = random_rows(draw)
        assert fitted(plan(*rows)) == pytest.approx(truth(plan(*rows)), rel=1e-4)


def test_coefficients_are_never_negative_under_noise() -> None:
    draw, fitted = random.Random(2), Fitted()
    for _ in range(300):
        rows = random_rows(draw)
        fitted.observe(step(max(1e-4, draw.gauss(0.02, 0.02)), *rows))
        assert min(fitted.coefficients) >= 0
        assert fitted(plan(*rows)) >= 0


def test_old_steps_are_forgotten() -> None:
    draw, fitted = random.Random(1), Fitted(forget=0.9)
    for law in (Linear(0.02, 0.001), Linear(0.04, 0.003)):  # another machine takes over
        for _ in range(150):
            rows = random_rows(draw)
            fitted.observe(step(law(plan(*rows)), *rows))
    assert fitted(plan((0, 100))) == pytest.approx(0.34, rel=0.02)


def test_which_prediction() -> None:
    model = Priced(step=0.5)
    assert isinstance(make_prediction("fitted", model), Fitted)
    assert make_prediction("model", model)(plan((0, 1))) == pytest.approx(0.501)
    given = Linear(1.0, 2.0)
    assert make_prediction(given, model) is given
    with pytest.raises(BadPolicy, match="'psychic' is not known"):
        make_prediction("psychic", model)

    class Real:
        name = "real"

    with pytest.raises(BadPolicy, match="real has no price list"):
        make_prediction("model", Real())
    with pytest.raises(BadPolicy, match="above 0 and at most 1"):
        Fitted(forget=0.0)
