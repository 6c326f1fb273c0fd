"""What chunking does to the gap between two tokens of a running request, on the virtual clock."""

from __future__ import annotations

import random

import pytest

from lab.chunking import TokenBudget
from lab.clock import Driver, VirtualClock
from lab.engine import Engine
from lab.metrics import request_times
from lab.prediction import Linear
from lab.request import Request, SamplingParams
from lab.running import build_engine
from lab.simulation.priced import Priced
from lab.trace import StepTrace

STEP, TOKEN, CONTEXT = 0.01, 0.0005, 0.000002  # seconds; per token; per token of context


class PricedContext(Priced):
    """Steps whose time depends on the context too."""

    def price(self, plan) -> float:
        return Linear(STEP, TOKEN, CONTEXT)(plan)


def drive(requests: list[Request], **axes) -> Engine:
    engine = build_engine(PricedContext(), requests, **axes)
    Driver(engine, requests, VirtualClock()).run()
    return engine


def full_step_seconds(step: StepTrace, budget: int) -> float:
    """Predicted time of a step that computes the whole budget at the context this step had."""
    return STEP + TOKEN * budget + CONTEXT * sum(row.start for row in step.rows)


def gaps(engine: Engine) -> list[tuple[int, list[StepTrace]]]:
    """For every two consecutive tokens of a request: the request and the steps after the first up to the second.

    Gaps in which the request was preempted are left out.
    """
    found, since = [], {}
    for step in engine.trace:
        for event in step.events:
            if event.kind == "preempted":
                since.pop(event.request, None)
        for steps in since.values():
            steps.append(step)
        for row in step.rows:
            if row.sampled:
                if row.request in since:
                    found.append((row.request, since[row.request]))
                since[row.request] = []
    return found


def stall_trace() -> list[Request]:
    """A short request that generates, and four long prompts that come while it does."""
    requests = [Request(0, None, SamplingParams(max_tokens=60), 0.0, num_prompt=8)]
    requests += [Request(id, None, SamplingParams(max_tokens=4), 0.1, num_prompt=1000) for id in range(1, 5)]
    return requests


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("blocks", [24, 400])
def test_with_a_token_budget_no_gap_exceeds_one_full_step_at_its_context(seed: int, blocks: int) -> None:
    draw = random.Random(seed)
    running = draw.choice([2, 6, 12])
    budget = draw.choice([running, running + 3, 64])  # the running requests fit the budget
    now, requests = 0.0, []
    for id in range(60):
        now += draw.expovariate(6.0)
        sampling = SamplingParams(max_tokens=draw.randint(1, 40))
        requests.append(Request(id, None, sampling, now, num_prompt=draw.choice([3, 20, 150, 300])))
    engine = drive(requests, batching=f"continuous:{running}", chunking=f"budget:{budget}", blocks=blocks)
    between = gaps(engine)
    assert len(between) > 300
    for request, steps in between:
        assert len(steps) == 1, f"request {request} was left out of a step"
        (step,) = steps
        assert step.computed <= budget
        assert step.end - step.start <= full_step_seconds(step, budget) + 1e-12
    if blocks == 24 and running > 2:
        assert any(event.kind == "preempted" for event in engine.trace.events())


def test_more_running_requests_than_budget_and_the_bound_is_gone() -> None:
    requests = [Request(id, None, SamplingParams(max_tokens=10), 0.0, num_prompt=1) for id in range(8)]
    engine = build_engine(PricedContext(), requests, batching="continuous:8", chunking="budget:8")
    driver = Driver(engine, requests, VirtualClock())
    for _ in range(3):
        driver.tick()
    engine.reconfigure(chunking=TokenBudget(4))  # admission alone never lets more run than the budget holds
    driver.run()
    assert max(len(steps) for _, steps in gaps(engine)) == 8  # the last four wait until the first four are done


def test_whole_prompts_stall_a_running_request_for_all_of_them_and_a_budget_does_not() -> None:
    whole = drive(stall_trace(), batching="continuous:8", chunking="whole")
    chunked = drive(stall_trace(), batching="continuous:8", chunking="budget:64")
    longest = [max(request_times(engine.trace)[0].gaps) for engine in (whole, chunked)]
    assert longest[0] == pytest.approx(STEP + TOKEN * 4000 + STEP + TOKEN * 5, rel=0.05)  # all four, then a decode
    assert longest[1] <= STEP + TOKEN * 64 + CONTEXT * 4100
    assert longest[0] > 30 * longest[1]


def test_the_budget_costs_the_long_prompts_some_of_their_first_token_time() -> None:
    ttft = []
    for chunking in ("whole", "budget:64"):
        engine = drive(stall_trace(), batching="continuous:8", chunking=chunking)
        ttft.append(request_times(engine.trace)[4].ttft)
    assert ttft[1] > ttft[0]
