"""Notebook 10: traffic for several lanes, lanes of one's own in an engine, and what is in flight when."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from lab.clock import VirtualClock
from lab.concurrent import LaneDriver, SharedTime
from lab.errors import BadPolicy
from lab.lanes import Lane
from lab.metrics import Report
from lab.running import build_engine, run, with_rate
from lab.trace import RunTrace, StepTrace
from lab.workload import Workload, chat_prompts, fixed_workload

#: Exercise 10.3: the traffic, and what its users ask for. Simulated: Llama-3-8B on an H100, chunks of 2,048 tokens.
WISHES = {
    "documents": "TTFT p50 at most 500 ms and ITL p95 at most 11 ms",
    "chat": "TTFT p95 at most 20 ms",
    "crowd": "at least 14,500 output tokens/s",
}

#: Exercise 10.5: what is said about several streams, and whether it holds.
CLAIMS = {
    "A": ("The contexts of ten requests differ in length, so their decodes cannot share a matrix product.", False),
    "B": ("At eight requests, two streams of four read twice as many bytes of weights per token as one batch.", True),
    "C": ("Two CUDA streams get half of the SMs each.", False),
    "D": ("A stream of high priority interrupts the kernels of a stream of low priority that are running.", False),
    "E": ("A chunk that rides along in a step with decodes needs no second reading of the weights.", True),
    "F": ("If a step is in flight 100 % of the time, the device does 100 % of what it can.", False),
    "G": ("Two streams can win where one leaves bandwidth idle that the other can use.", True),
}


def mixed(requests: int, rate: float, prompt: tuple[int, int], output: tuple[int, int], seed: int = 1) -> Workload:
    """Prompts and answers of lengths uniform within the given limits (both included), Poisson arrivals."""
    draw, now = random.Random(seed), 0.0
    prompts, outputs, arrivals = [], [], []
    for _ in range(requests):
        prompts.append(draw.randint(*prompt))
        outputs.append(draw.randint(*output))
        arrivals.append(now)
        now += draw.expovariate(rate)
    return fixed_workload(prompts, outputs, arrivals)


def documents(requests: int = 72) -> Workload:
    """Eight requests per second with 1,000 to 6,000 tokens to read, and 50 to 250 to write."""
    return mixed(requests, 8.0, (1000, 6000), (50, 250))


def chat(requests: int = 96) -> Workload:
    """Sixty requests per second with 16 to 128 tokens to read, and 50 to 150 to write."""
    return mixed(requests, 60.0, (16, 128), (50, 150))


def crowd(requests: int, output: int = 128, prompt: int = 64) -> Workload:
    """Everybody at once, all alike: next to nothing but decodes."""
    return fixed_workload([prompt] * requests, [output] * requests)


def clear_crowd(requests: int, output: int) -> Workload:
    """`requests` chat prompts at once whose first `output` tokens are clear-cut (see lab.workload.chat_prompts).

    Raises BadPolicy where there are not so many.
    """
    texts = [text for text, clear in chat_prompts() if clear >= output][:requests]
    if len(texts) < requests:
        raise BadPolicy(f"{len(texts)} prompts have {output} clear-cut tokens, and {requests} are asked for")
    return fixed_workload(texts, [output] * requests)


def run_lanes(work: Workload, model: Any, lanes: Sequence[Lane], **options: Any) -> Report:
    """`lab.run` for lanes that have no spec, on the virtual clock; options are those of `lab.build_engine`."""
    requests = with_rate(work, model).requests(model)
    engine, clock = build_engine(model, requests, **options), VirtualClock()
    engine.trace.meta |= {"clock": clock.name, "measured": False, "workload": work.name}
    engine.trace.meta["axes"]["lanes"] = ", ".join(lane.name for lane in lanes)
    return Report.from_trace(LaneDriver(engine, requests, clock, lanes, SharedTime(engine, clock, lanes)).run())


def flights(trace: RunTrace) -> list[tuple[float, float]]:
    """(start, end) of every step, in seconds, in order of their starts."""
    return sorted((step.start, step.end) for step in trace)


def places(trace: RunTrace) -> list[tuple[int, StepTrace]]:
    """Every step with a line to draw it on: the first that is free when it begins."""
    free: list[float] = []
    placed = []
    for step in sorted(trace, key=lambda step: step.start):
        place = next((line for line, end in enumerate(free) if end <= step.start + 1e-9), len(free))
        free[place : place + 1] = [step.end]
        placed.append((place, step))
    return placed


def wish(mix: str, lanes: str, model: Any) -> tuple[bool, str]:
    """Whether `lanes` give the users of a mix of WISHES what they ask for, and in words what they get."""
    work = {"documents": documents(40), "chat": chat(60), "crowd": crowd(512, 32)}[mix]
    report = run(work, model, batching="continuous:512", chunking="budget:2048", lanes=lanes)
    if mix == "documents":
        ttft, itl = 1e3 * report.ttft_s.p50, 1e3 * report.itl_s.p95
        return ttft <= 500 and itl <= 11, f"TTFT p50 {ttft:.0f} ms, ITL p95 {itl:.1f} ms"
    if mix == "chat":
        ttft = 1e3 * report.ttft_s.p95
        return ttft <= 20, f"TTFT p95 {ttft:.1f} ms"
    return report.output_tokens_per_s >= 14_500, f"{report.output_tokens_per_s:,.0f} output tokens/s"
