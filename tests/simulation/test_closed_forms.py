"""Simulated runs through the real engine against queueing theory and the arithmetic of chunks."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import fmean as mean

import pytest

import lab
from lab.batching.control.fixed import greedy_latency
from lab.batching.dynamic import Dynamic
from lab.clock import Driver, VirtualClock
from lab.engine import Engine
from lab.plan import Row, StepPlan
from lab.request import Request, SamplingParams
from lab.running import build_engine
from lab.simulation.hardware import device
from lab.simulation.work import work_of


def arrivals(rate: float, count: int) -> list[float]:
    """Poisson arrival times."""
    draw, now, times = random.Random(12), 0.0, []
    for _ in range(count):
        now += draw.expovariate(rate)
        times.append(now)
    return times


def one_token_requests(times: list[float], prompt: int) -> list[Request]:
    """Requests for one output token each, so that the prefill is all of their service."""
    return [Request(i, None, SamplingParams(max_tokens=1), at, num_prompt=prompt) for i, at in enumerate(times)]


def batches(times: list[float], per_batch: float, per_request: float, most: int) -> list[float]:
    """Latency of each arrival where all that wait (at most `most`) are served together: the recursion, no engine."""
    latencies, now, place = [], 0.0, 0
    while place < len(times):
        now, end = max(now, times[place]), place
        while end < len(times) and end < place + most and times[end] <= now:
            end += 1
        now += per_batch + per_request * (end - place)
        latencies += [now - at for at in times[place:end]]
        place = end
    return latencies


def drive(model, requests: list[Request], **axes) -> Engine:
    engine = build_engine(model, requests, **axes)
    Driver(engine, requests, VirtualClock(), leaps=True).run()
    return engine


def latencies(requests: list[Request]) -> list[float]:
    return [request.first_token_time - request.arrival_time for request in requests]


def prefill_seconds(model, *prompts: int) -> float:
    requests = [Request(i, None, num_prompt=tokens) for i, tokens in enumerate(prompts)]
    return model.price(StepPlan([Row(each, 0, each.num_prompt, samples=True) for each in requests]))


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_prefills_one_after_the_other_are_an_md1_queue(load: float) -> None:
    """Mean wait R·D²/(2(1 − R·D)) (Pollaczek and Khinchine; DistServe, arXiv:2401.09670, uses it for prefills)."""
    model = lab.simulated("llama-3-8b", on="h100-sxm")
    seconds = prefill_seconds(model, 1000)
    rate = load / seconds
    times = arrivals(rate, 1_500)
    requests = one_token_requests(times, 1000)
    drive(model, requests, batching="continuous:1", chunking="whole")
    assert latencies(requests) == pytest.approx(batches(times, seconds, 0, 1), rel=1e-9)
    waits = mean(batches(arrivals(rate, 400_000), seconds, 0, 1)) - seconds
    assert waits == pytest.approx(rate * seconds**2 / (2 * (1 - load)), rel=0.02)


@pytest.mark.parametrize("load", [0.5, 0.9])
def test_greedy_batches_meet_inoues_closed_form(load: float) -> None:
    """A batch of b one-token prompts takes τ0 + α·b where the roofline is a plain sum (arXiv:1912.06322)."""
    card = device("l4")
    linear = replace(card, peak_flops=card.peak_flops / 200, fit=replace(card.fit, p=1.0))
    model = lab.simulated("llama-3-8b", on=linear)
    per_request = prefill_seconds(model, 1, 1) - prefill_seconds(model, 1)
    per_batch = prefill_seconds(model, 1) - per_request
    assert prefill_seconds(model, *[1] * 50) == pytest.approx(per_batch + 50 * per_request)
    rate = load / per_request
    times = arrivals(rate, 1_500)
    requests = one_token_requests(times, 1)
    options = dict(batching=Dynamic(10**6, "greedy"), attention="packed", delivery="token", blocks=100_000)
    drive(model, requests, **options)
    assert latencies(requests) == pytest.approx(batches(times, per_batch, per_request, 10**6), rel=1e-9)
    found = mean(batches(arrivals(rate, 400_000), per_batch, per_request, 10**6))
    assert found == pytest.approx(greedy_latency(rate, per_request, per_batch), rel=0.04)


@pytest.mark.parametrize(
    "chunk, pairs, reread",
    # T(p + c) − T(p) with T(n) = n(n + 1)/2, a prompt of 20,000; keys read again: Σ prior tokens
    [
        (5_000, [12_502_500, 37_502_500, 62_502_500, 87_502_500], 30_000),
        (10_000, [50_005_000, 150_005_000], 10_000),
        (20_000, [200_010_000], 0),
        (512, None, 399_360),
        (2_000, None, 90_000),
    ],
)
def test_equal_chunks_are_not_equal_work(chunk: int, pairs: list[int] | None, reread: int) -> None:
    model = lab.simulated("llama-3.1-8b", on="h100-sxm")
    request = Request(0, None, SamplingParams(max_tokens=1), num_prompt=20_000)
    engine = drive(model, [request], batching="continuous:1", chunking=f"budget:{chunk}")
    works, times = [], []
    for step in engine.trace:
        (row,) = step.rows
        works.append(work_of(StepPlan([Row(request, row.start, row.num_tokens, row.sampled)])))
        times.append(step.end - step.start)
    assert sum(work.chunk_pairs for work in works) == 200_010_000
    assert sum(work.chunk_keys - work.tokens for work in works) == reread
    if pairs is not None:
        assert [work.chunk_pairs for work in works] == pairs
    full = times[:-1] if 20_000 % chunk else times
    assert full == sorted(full)  # every chunk takes longer than the one before


def test_smaller_chunks_read_the_weights_and_the_keys_more_often() -> None:
    model = lab.simulated("llama-3.1-8b", on="h100-sxm")
    ends = {}
    for chunk in (128, 512, 2_000, 20_000):
        request = Request(0, None, SamplingParams(max_tokens=1), num_prompt=20_000)
        drive(model, [request], batching="continuous:1", chunking=f"budget:{chunk}")
        ends[chunk] = request.first_token_time
    assert ends[128] > 1.5 * ends[2_000] and ends[512] > ends[2_000] > ends[20_000]
    assert ends[2_000] < 1.25 * ends[20_000]
