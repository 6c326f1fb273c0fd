"""Traffic with long prompts in it, and what it does to those who are reading along. For notebook 07."""

from __future__ import annotations

import random
from typing import Any

from lab.metrics import Report
from lab.running import run
from lab.workload import Workload, fixed_workload


def numbered(tokens: int, first: int = 100) -> tuple[int, ...]:
    """A prompt of that many token ids. It means nothing; computing it costs what any prompt of its length costs."""
    return tuple(first + i % 300 for i in range(tokens))


def stall_workload(
    long: int = 900, readers: int = 3, output: int = 60, arrival: float = 1.0, ids: bool = False
) -> Workload:
    """`readers` short prompts at time 0, and one long prompt at `arrival`, while their answers are being written."""
    prompts: list[Any] = [20] * readers + [long]
    if ids:
        prompts = [numbered(tokens, 100 + 10 * place) for place, tokens in enumerate(prompts)]
    return fixed_workload(prompts, [output] * readers + [8], [0.0] * readers + [arrival])


def soon(model: Any, tokens: int = 8, readers: int = 3) -> float:
    """Seconds after which `readers` have about `tokens` tokens each, measured: all are still reading then."""
    prompts = [numbered(20, 100 + 10 * place) for place in range(readers)]
    return run(fixed_workload(prompts, [tokens] * readers), model, clock="virtual", batching="continuous:8").duration_s


def mixed_workload(requests: int = 48, rate: float = 2.0, seed: int = 0, long_share: float = 0.25) -> Workload:
    """Mostly prompts of 16 to 96 tokens, some of 300 to 1,000; answers of 10 to 60 tokens; Poisson arrivals."""
    draw, now = random.Random(seed), 0.0
    prompts, outputs, arrivals = [], [], []
    for _ in range(requests):
        prompts.append(draw.randint(300, 1000) if draw.random() < long_share else draw.randint(16, 96))
        outputs.append(draw.randint(10, 60))
        arrivals.append(now)
        now += draw.expovariate(rate)
    return fixed_workload(prompts, outputs, arrivals)


def longest_gap(report: Report) -> float:
    """The longest pause between two tokens of any request, in seconds."""
    return max(gap for times in report.times.values() for gap in [0.0, *times.gaps])


def late_tokens(report: Report, tbt: float) -> float:
    """Share of the tokens after the first that come later than a reader wants them who reads one every `tbt` seconds.

    The reader begins at the first token; a token that came early waits for the eye, as in a player's buffer.
    """
    late = total = 0
    for times in report.times.values():
        for place, time in enumerate(times.tokens[1:], 1):
            total += 1
            late += time > times.tokens[0] + tbt * place + 1e-9
    return late / max(1, total)


def largest_chunk(report: Report) -> int:
    """Most prompt tokens that one request computed in one step."""
    return max(row.num_tokens for step in report.trace for row in step.rows)
