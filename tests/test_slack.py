from __future__ import annotations

import random

import pytest

from lab.chunking import SlackBudget, StepView, chunks
from lab.clock import Driver, VirtualClock
from lab.errors import BadPolicy
from lab.metrics import request_times
from lab.prediction import Linear
from lab.request import Request, SamplingParams
from lab.running import build_engine
from lab.simulation.priced import Priced

LAW = Linear(0.010, 0.001)


def decode(first: float | None, outputs: int, deadline: float | None = None) -> Request:
    each = Request(1, None, num_prompt=50, deadline=deadline)
    each.num_output, each.num_computed, each.first_token_time = outputs, 50 + outputs - 1, first
    return each


def prompt(length: int, computed: int = 0) -> Request:
    each = Request(2, None, num_prompt=length)
    each.num_computed = computed
    return each


def test_a_token_is_due_on_the_schedule_that_the_first_one_began() -> None:
    policy = SlackBudget(tbt=0.1)
    assert policy.due(decode(first=2.0, outputs=5)) == pytest.approx(2.5)
    assert policy.due(decode(first=2.0, outputs=5, deadline=3.0)) == pytest.approx(3.5)  # ahead of its deadline
    assert policy.due(decode(first=4.0, outputs=5, deadline=3.0)) == pytest.approx(4.5)
    assert policy.due(decode(first=None, outputs=0)) == float("inf")


@pytest.mark.parametrize("slack", [0.02, 0.05, 0.1, 0.31, 0.5, 5.0])
@pytest.mark.parametrize("least", [1, 16, 100])
def test_the_chunk_is_the_largest_multiple_that_fits_the_tightest_slack(slack: float, least: int) -> None:
    policy = SlackBudget(tbt=0.1, most=400, least=least, margin=1.2)
    decodes = [decode(first=10.0, outputs=3), decode(first=8.0, outputs=40)]
    view = StepView(10.3 - slack, decodes, [prompt(1000)], LAW, 0)
    fits = [n for n in range(least, 401, least) if 1.2 * (0.010 + 0.001 * (2 + n)) <= slack + 1e-12]
    assert policy.chunk(view) == max(fits, default=least)
    assert policy.budget(view) == policy.chunk(view) + 2


def test_without_decodes_or_without_prompts_there_is_nothing_to_hold_back() -> None:
    policy = SlackBudget(most=512)
    assert policy.budget(StepView(0.0, [], [prompt(1000)], LAW, 0)) == 512
    assert policy.budget(StepView(99.0, [decode(1.0, 2)], [], LAW, 0)) == 513
    assert policy.budget(StepView(99.0, [decode(1.0, 2)], [], LAW, 1)) == 17  # late, and somebody waits


def test_while_nothing_is_known_chunks_are_the_smallest() -> None:
    view = StepView(1.0, [decode(1.0, 2)], [prompt(1000)], lambda plan: None, 0)
    assert SlackBudget(least=32).chunk(view) == 32


def test_a_chunk_is_dealt_out_in_admission_order_and_the_rest_is_a_prompt_not_yet_known() -> None:
    first, second = prompt(30, computed=10), prompt(100)
    assert [(row.start, row.num_tokens, row.samples) for row in chunks([first, second], 50)] == [
        (10, 20, True),
        (0, 30, False),
    ]
    rows = chunks([first], 50)
    assert [(row.request.id, row.start, row.num_tokens) for row in rows] == [(2, 10, 20), (-1, 0, 30)]


@pytest.mark.parametrize("predict", ["model", "fitted"])
def test_through_the_engine_tokens_keep_their_schedule_and_prompts_get_larger_chunks_than_a_safe_budget(
    predict,
) -> None:
    tbt, reports = 0.1, {}
    for chunking in (f"slack:{tbt}", "budget:64"):
        draw, requests = random.Random(3), []
        for id in range(40):
            sampling = SamplingParams(max_tokens=draw.randint(20, 60))
            requests.append(Request(id, None, sampling, 0.25 * id, num_prompt=draw.choice([20, 100, 400])))
        engine = build_engine(
            Priced(step=0.02, token=0.0005), requests, batching="continuous:24", chunking=chunking, predict=predict
        )
        Driver(engine, requests, VirtualClock()).run()
        reports[chunking] = engine
    late, tokens = 0, 0
    for times in request_times(reports[f"slack:{tbt}"].trace).values():
        for place, time in enumerate(times.tokens):
            tokens += 1
            late += time > times.tokens[0] + tbt * place + 1e-9
    assert tokens > 1000 and late <= (0 if predict == "model" else 0.01 * tokens)
    largest = [max(row.num_tokens for step in engine.trace for row in step.rows) for engine in reports.values()]
    assert largest[0] > 2 * largest[1]


@pytest.mark.parametrize(
    "settings", [{"tbt": 0.0}, {"tbt": float("nan")}, {"least": 0}, {"least": 9, "most": 8}, {"margin": 0.0}]
)
def test_settings_without_sense_are_refused(settings: dict) -> None:
    with pytest.raises(BadPolicy, match="slack chunking with"):
        SlackBudget(**settings)
