"""What the slots of the KV pool are used for while requests wait for memory, and traffic like the paper's.

After figure 2 of the PagedAttention paper (SOSP'23): tokens, reserved for tokens still to come, reserved and never
used, and free but in holes too small for the next request.
"""

from __future__ import annotations

import random

from lab.metrics import Report
from lab.workload import Workload, fixed_workload

KINDS = ("tokens", "kept for later", "never used", "free")

#: The paper's means of ShareGPT, and the slots that OPT-13B leaves on one A100-40GB (its table 1: 15.7K).
PROMPT_MEAN, OUTPUT_MEAN, SLOTS, LONGEST = 161.31, 337.99, 15_700, 2048


def sharegpt_paper_workload(requests: int = 200, seed: int = 0) -> Workload:
    """Everybody waits from the start; lengths are log-normal about the paper's means, at most 2,048 together.

    Only the means are published; the spread (sigma 1 for prompts, 0.8 for answers) is ours.
    """
    draw = random.Random(seed)
    prompts = _lengths(requests, PROMPT_MEAN, 1.0, 1000, draw)
    outputs = _lengths(requests, OUTPUT_MEAN, 0.8, 1000, draw)
    return fixed_workload(prompts, outputs)


def _lengths(count: int, mean: float, sigma: float, longest: int, draw: random.Random) -> list[int]:
    """Log-normal lengths, scaled until their mean is right although none exceeds `longest`."""
    noise = [draw.lognormvariate(0.0, sigma) for _ in range(count)]
    low, high = 0.0, 100 * mean
    for _ in range(60):
        scale = (low + high) / 2
        lengths = [min(longest, max(4, round(scale * value))) for value in noise]
        low, high = (scale, high) if sum(lengths) < mean * count else (low, scale)
    return lengths


def pool_use(report: Report) -> dict[str, float]:
    """Shares of all slots of the pool by KINDS, averaged over the steps after which somebody still waits.

    Steps without a queue say nothing about memory: blocks are then free because nobody wants them.
    """
    trace = report.trace
    total = trace.meta["num_blocks"] * trace.meta["block_size"]
    finals = {id: info.num_prompt + info.max_tokens - 1 for id, info in trace.requests.items()}
    held: dict[int, int] = {}  # running request -> tokens computed
    sums, counted = dict.fromkeys(KINDS, 0), 0
    for step in trace:
        for event in step.events:
            if event.kind == "admitted":
                held[event.request] = event.value
            elif event.kind == "preempted":
                held.pop(event.request, None)
        for row in step.rows:
            held[row.request] = row.start + row.num_tokens
        if step.waiting:
            counted += 1
            later = sum(finals[request] - tokens for request, tokens in held.items())
            later = min(later, step.slots - step.resident)
            parts = (step.resident, later, step.slots - step.resident - later, total - step.slots)
            sums = {kind: sums[kind] + part for kind, part in zip(KINDS, parts, strict=True)}
        for event in step.events:
            if event.kind == "finished":
                held.pop(event.request, None)
    return {kind: value / (counted * total) for kind, value in sums.items()} if counted else {}


def crowd(requests: int = 30, seed: int = 5) -> Workload:
    """Requests of very different length that all wait from the start: enough to fill a small pool, for drawing."""
    draw = random.Random(seed)
    prompts = [draw.randrange(20, 160) for _ in range(requests)]
    return fixed_workload(prompts, [draw.randrange(20, 240) for _ in range(requests)])
