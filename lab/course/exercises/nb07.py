"""Checks of notebook 07: the stall-free rule, chunks of equal work, a budget for a limit, and an exact fit.

Written together with notebooks/instructor/source/07_chunked_prefill.py, which calls them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from lab.cluster.prefill import triangle
from lab.course.broken import run_planted
from lab.course.broken_scheduling import exact_fit_is_split
from lab.course.checks import Probe, exercise
from lab.course.dealing import deal_all, dealt
from lab.course.stalls import longest_gap, mixed_workload
from lab.metrics import Report
from lab.simulation.priced import Priced
from lab.trace import RunTrace
from lab.workload import Workload, fixed_workload

PRICES = {"step": 0.040, "token": 0.002}


def share_out(budget: int, remaining: list[int]) -> list[int]:
    """A solution of 07.1."""
    counts = [0] * len(remaining)
    for decodes in (True, False):
        for place, tokens in enumerate(remaining):
            if (tokens == 1) == decodes:
                counts[place] = min(tokens, budget)
                budget -= counts[place]
    return counts


def _in_order(budget: int, remaining: list[int]) -> list[int]:
    counts = []
    for tokens in remaining:
        counts.append(min(tokens, budget))
        budget -= counts[-1]
    return counts


def _prompts_first(budget: int, remaining: list[int]) -> list[int]:
    order = sorted(range(len(remaining)), key=lambda place: remaining[place] == 1)
    counts = [0] * len(remaining)
    for place in order:
        counts[place] = min(remaining[place], budget)
        budget -= counts[place]
    return counts


def _one_prompt_per_step(budget: int, remaining: list[int]) -> list[int]:
    counts, begun = [int(tokens == 1) for tokens in remaining], False
    for place, tokens in enumerate(remaining):
        if tokens > 1 and not begun:
            counts[place], begun = min(tokens, budget - sum(counts)), True
    return counts


def _whole_or_nothing(budget: int, remaining: list[int]) -> list[int]:
    counts = [int(tokens == 1) for tokens in remaining]
    for place, tokens in enumerate(remaining):
        if tokens > 1 and tokens <= budget - sum(counts):
            counts[place] = tokens
    return counts


@exercise(
    "07.1",
    "Share out a token budget without stalling anybody",
    hints=(
        "Whoever has 1 token left to compute is decoding. All of them get theirs before any prompt gets a token.",
        "Then the prompts, in order: each gets min(what it has left, what is left of the budget).",
        "counts = [0] * len(remaining); go through the list twice, first for tokens == 1, then for the others.",
    ),
    solution=lambda: share_out,
    wrong={
        "in the order of the list": lambda: _in_order,
        "prompts first": lambda: _prompts_first,
        "one prompt per step": lambda: _one_prompt_per_step,
        "a prompt waits until it fits whole": lambda: _whole_or_nothing,
        "everybody everything": lambda: lambda budget, remaining: list(remaining),
        "decodes only": lambda: lambda budget, remaining: [int(tokens == 1) for tokens in remaining],
    },
)
def stall_free(answer: Any, probe: Probe) -> None:
    """answer(budget, remaining) -> how many tokens of each are computed in this step."""
    probe.step("it is a function")
    probe.function(answer, "share_out")
    probe.step("a prompt alone gets the whole budget, and what is left of it when that is less")
    probe.equal(answer(64, [200]), [64], "share_out(64, [200])")
    probe.equal(answer(64, [20]), [20], "share_out(64, [20])")
    probe.step("decodes go first, wherever they stand in the list")
    probe.equal(answer(64, [200, 1, 1]), [62, 1, 1], "share_out(64, [200, 1, 1])")
    probe.step("several prompts share what the decodes leave, in order")
    probe.equal(answer(64, [1, 30, 50, 40]), [1, 30, 33, 0], "share_out(64, [1, 30, 50, 40])")
    probe.step("a budget smaller than the number of decodes: the first ones get their token")
    probe.equal(answer(2, [90, 1, 1, 1]), [0, 1, 1, 0], "share_out(2, [90, 1, 1, 1])")
    probe.step("in a whole run: every step as the engine deals it out with lab.TokenBudget")
    for budget in (16, 64):
        prompts, outputs = [20, 150, 64, 9, 100, 15], [12, 4, 9, 15, 6, 2]
        ours, theirs = deal_all(answer, budget, prompts, outputs), _engine_deals(budget, prompts, outputs)
        probe.equal(ours, theirs, f"the tokens of every step with a budget of {budget}")


def _engine_deals(budget: int, prompts: Sequence[int], outputs: Sequence[int]) -> list[dict[int, int]]:
    from lab.running import run

    work = fixed_workload(list(prompts), list(outputs))
    return dealt(run(work, Priced(), batching="continuous:64", chunking=f"budget:{budget}").trace)


def equal_work(prompt: int, parts: int) -> list[int]:
    """A solution of 07.2."""
    cuts = [round(prompt * (part / parts) ** 0.5) for part in range(parts + 1)]
    return [after - before for before, after in zip(cuts, cuts[1:], strict=False)]


def spread(chunks: Sequence[int]) -> float:
    """Most work of a chunk divided by the least, in query-key pairs."""
    works, start = [], 0
    for tokens in chunks:
        works.append(triangle(start + tokens) - triangle(start))
        start += tokens
    return max(works) / max(1, min(works))


def _equal_tokens(prompt: int, parts: int) -> list[int]:
    cuts = [round(prompt * part / parts) for part in range(parts + 1)]
    return [after - before for before, after in zip(cuts, cuts[1:], strict=False)]


def _halves(prompt: int, parts: int) -> list[int]:
    chunks = []
    for _ in range(parts - 1):
        chunks.append((prompt - sum(chunks)) // 2)
    return [*chunks, prompt - sum(chunks)]


@exercise(
    "07.2",
    "Chunks of equal work",
    hints=(
        "Chunks must become shorter towards the end. Where must the first of two chunks of equal work end?",
        "Everything up to token c is about c²/2 pairs. A share of i/parts of the work is reached at c² = N²·i/parts.",
        "Cuts at round(prompt * (i / parts) ** 0.5) for i = 0 … parts; the chunks are the differences.",
    ),
    solution=lambda: equal_work,
    wrong={
        "equal tokens": lambda: _equal_tokens,
        "the longest last": lambda: lambda prompt, parts: equal_work(prompt, parts)[::-1],
        "half of the rest each time": lambda: _halves,
        "a linear slope": lambda: (
            lambda prompt, parts: [round(2 * prompt * (parts - i) / (parts * (parts + 1))) for i in range(parts)]
        ),
        "cuts instead of lengths": lambda: (
            lambda prompt, parts: [round(prompt * (part / parts) ** 0.5) for part in range(1, parts + 1)]
        ),
    },
)
def same_work(answer: Any, probe: Probe) -> None:
    """answer(prompt, parts) -> lengths of the chunks."""
    probe.step("it is a function")
    probe.function(answer, "equal_work")
    probe.step("one part is the whole prompt")
    probe.equal(answer(1000, 1), [1000], "equal_work(1000, 1)")
    for prompt, parts in ((20_000, 4), (20_000, 10), (5_000, 3)):
        probe.step(f"{prompt:,} tokens in {parts} chunks: so many whole numbers, and nothing is lost")
        chunks = list(answer(prompt, parts))
        whole = len(chunks) == parts and all(type(tokens) is int and tokens > 0 for tokens in chunks)
        probe.true(whole, f"equal_work({prompt}, {parts}) should be {parts} whole numbers above 0, got {chunks}")
        probe.equal(sum(chunks), prompt, f"the sum of equal_work({prompt}, {parts})")
        probe.step(f"{prompt:,} tokens in {parts} chunks: the work of the chunks differs by at most 1 %")
        probe.true(
            spread(chunks) <= 1.01, f"the costliest chunk has {spread(chunks):.2f} times the work of the cheapest"
        )


#: Exercise 07.3: the limit on the gap, and how much throughput it may cost.
LIMIT, KEEP = 0.350, 0.97


@cache
def _sweep_run(budget: int | None) -> tuple[float, float]:
    from lab.running import run

    chunking = "whole" if budget is None else f"budget:{budget}"
    report = run(sweep_workload(), Priced(**PRICES), batching="continuous:8", chunking=chunking, blocks=1000)
    return longest_gap(report), report.output_tokens_per_s


def sweep_workload() -> Workload:
    """The traffic of the budget sweep."""
    return mixed_workload(requests=48, rate=2.0, seed=0)


def gap_and_speed(budget: int) -> tuple[float, float]:
    """(longest gap in virtual seconds, output tokens per second) with a token budget, on the traffic of the sweep."""
    return _sweep_run(int(budget))


@exercise(
    "07.3",
    "A budget for a limit",
    hints=(
        "The gap is bounded by one full step. Which budget makes a full step last 0.35 s at 40 ms plus 2 ms per token?",
        "A budget that is much smaller keeps the limit too, but pays the fixed 40 ms more often.",
        "Anything from about 100 to 155 will do; gap_and_speed(budget) tells.",
    ),
    solution=lambda: 150,
    wrong={
        "too large": lambda: 512,
        "so small that throughput suffers": lambda: 16,
        "no budget": lambda: 0,
        "not a whole number": lambda: 150.5,
        "negative": lambda: -64,
    },
)
def budget_for_limit(answer: Any, probe: Probe) -> None:
    """answer is a number of tokens per step."""
    probe.step("it is a whole number of at least 1")
    probe.true(type(answer) is int and 1 <= answer <= 100_000, f"a number of tokens, for example 64; got {answer!r}")
    gap, speed = gap_and_speed(answer)
    probe.step(f"no gap is longer than {1000 * LIMIT:.0f} ms")
    probe.true(gap <= LIMIT, f"the longest gap is {1000 * gap:.0f} ms")
    probe.step(f"throughput is at least {KEEP:.0%} of what a budget of 2,048 reaches")
    most = gap_and_speed(2048)[1]
    probe.true(speed >= KEEP * most, f"{speed:.1f} tokens/s are {speed / most:.1%} of {most:.1f}")


def silent_ends(trace: RunTrace) -> list[int]:
    """A solution of 07.4."""
    known = {request: info.num_prompt for request, info in trace.requests.items()}
    found = []
    for step in trace:
        for row in step.rows:
            if row.start + row.num_tokens == known[row.request] and not row.sampled:
                found.append(step.index)
            known[row.request] += row.sampled
    return found


def aligned_workload() -> Workload:
    """Prompts of which some fit a budget of 64 exactly."""
    return fixed_workload([64, 128, 40, 64, 192, 30, 64, 100], [12] * 8, [0, 1.2, 2.5, 2.6, 5, 6.5, 8, 9.5])


def _unsampled(trace: RunTrace) -> list[int]:
    return [step.index for step in trace for row in step.rows if row.num_tokens > 1 and not row.sampled]


def _full_steps(trace: RunTrace) -> list[int]:
    return [step.index for step in trace if step.computed == 64]


def _computed_again(trace: RunTrace) -> list[int]:
    return [step.index for step in trace if step.recomputed]


def _prompt_only(trace: RunTrace) -> list[int]:
    return [
        step.index
        for step in trace
        for row in step.rows
        if row.start + row.num_tokens == trace.requests[row.request].num_prompt
    ]


@exercise(
    "07.4",
    "Break it: a prompt that ends in silence",
    hints=(
        "When all tokens of a request are computed, the step must give its next token. Which steps do not keep that?",
        "A row ends at row.start + row.num_tokens. Compare with the tokens known so far: prompt plus those sampled.",
        "known = {id: info.num_prompt …}; count up known[row.request] when row.sampled; collect ends without a sample.",
    ),
    solution=lambda: silent_ends,
    wrong={
        "no step at all": lambda: lambda trace: [],
        "every chunk that samples nothing": lambda: _unsampled,
        "every full step": lambda: _full_steps,
        "the step after": lambda: _computed_again,
        "every end of a prompt": lambda: _prompt_only,
    },
)
def exact_fit(answer: Any, probe: Probe) -> None:
    """answer(trace) -> list of step indices."""
    probe.step("it is a function")
    probe.function(answer, "silent_ends")
    probe.step("healthy engines: no such step, with chunks or without")
    for chunking in ("budget:64", "whole"):
        probe.equal(answer(_run(chunking).trace), [], f"silent_ends(healthy, {chunking})")
    for budget in (64, 32):
        probe.step(f"the broken engine with a budget of {budget}: exactly the steps concerned")
        trace = run_planted(
            aligned_workload(),
            Priced(**PRICES),
            exact_fit_is_split,
            batching="continuous:8",
            chunking=f"budget:{budget}",
        ).trace
        probe.equal(answer(trace), silent_ends(trace), f"silent_ends(broken, {budget})")
    probe.step("after a preemption a request computes its own answer again; that is no bug")
    work = fixed_workload([40, 40, 40], [40, 40, 40])
    tight = _run("budget:64", work, blocks=11).trace
    probe.equal(answer(tight), [], "silent_ends(healthy, with too little memory)")


def _run(chunking: str, work: Workload | None = None, **options: Any) -> Report:
    from lab.running import run

    return run(work or aligned_workload(), Priced(**PRICES), batching="continuous:8", chunking=chunking, **options)
