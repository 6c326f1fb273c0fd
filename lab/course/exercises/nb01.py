"""Checks of notebook 01: two latencies, the size of the cache, what recomputing costs, and a cache that is lost.

Written together with notebooks/instructor/source/01_one_request.py, which calls them.
"""

from __future__ import annotations

from typing import Any

from lab.course.broken import cache_lost_with_each_block, run_planted, without_cache
from lab.course.checks import Probe, exercise
from lab.engine import Engine
from lab.simulation.priced import Priced
from lab.trace import RunTrace
from lab.workload import fixed_workload

#: The prompt of exercise 01.3, and how many times more work it asks for.
PROMPT, TIMES = 40, 20


def latencies(arrival: float, token_times: list[float]) -> tuple[float, float | None]:
    """A solution of 01.1."""
    ttft = token_times[0] - arrival
    if len(token_times) == 1:
        return ttft, None
    return ttft, (token_times[-1] - token_times[0]) / (len(token_times) - 1)


def _over_all(arrival: float, times: list[float]) -> tuple[float, float | None]:
    return times[0] - arrival, (times[-1] - arrival) / len(times)


def _by_count(arrival: float, times: list[float]) -> tuple[float, float | None]:
    return times[0] - arrival, (times[-1] - times[0]) / len(times)


def _zero_for_one(arrival: float, times: list[float]) -> tuple[float, float | None]:
    return times[0] - arrival, (times[-1] - times[0]) / max(1, len(times) - 1)


@exercise(
    "01.1",
    "TTFT and TPOT from timestamps",
    hints=(
        "TPOT leaves the first token out: n tokens have n − 1 gaps between them.",
        "(token_times[-1] - token_times[0]) / (len(token_times) - 1), and None when there is only one token",
    ),
    solution=lambda: latencies,
    wrong={
        "TTFT not from the arrival": lambda: lambda arrival, times: (times[0], latencies(arrival, times)[1]),
        "TPOT that includes the wait": lambda: _over_all,
        "divided by n": lambda: _by_count,
        "zero for a single token": lambda: _zero_for_one,
        "the other order": lambda: lambda arrival, times: latencies(arrival, times)[::-1],
    },
)
def two_latencies(answer: Any, probe: Probe) -> None:
    """answer(arrival, token_times) -> (ttft, tpot)."""
    probe.step("it is a function")
    probe.function(answer, "latencies")
    probe.step("TTFT: from the arrival to the first token", "It is one subtraction: token_times[0] minus the arrival.")
    got = answer(10.0, [12.0, 12.5, 13.0])
    probe.true(isinstance(got, tuple | list) and len(got) == 2, "it should return two values: (ttft, tpot)")
    probe.close(got[0], 2.0, "TTFT of latencies(10.0, [12.0, 12.5, 13.0])")
    probe.step("TPOT: the mean gap between tokens, the first token not counted", "Three tokens have two gaps.")
    probe.close(got[1], 0.5, "TPOT of latencies(10.0, [12.0, 12.5, 13.0])")
    probe.close(answer(0.0, [0.4, 0.5, 0.7, 1.0])[1], 0.2, "TPOT of latencies(0.0, [0.4, 0.5, 0.7, 1.0])")
    probe.step("a single token has no TPOT: None", "With one token there is no gap. Return (ttft, None).")
    only = answer(1.0, [3.0])
    probe.close(only[0], 2.0, "TTFT of latencies(1.0, [3.0])")
    probe.equal(only[1], None, "TPOT of latencies(1.0, [3.0])")


def cache_bytes(tokens: int, layers: int, kv_heads: int, head_dim: int, bytes_per_number: int) -> int:
    """A solution of 01.2."""
    return tokens * layers * 2 * kv_heads * head_dim * bytes_per_number


@exercise(
    "01.2",
    "How large is the KV cache?",
    hints=(
        "Each token leaves a key AND a value behind, in every layer, for every key/value head.",
        "One key is head_dim numbers; so is one value.",
        "tokens * layers * 2 * kv_heads * ...",
    ),
    solution=lambda: cache_bytes,
    wrong={
        "keys without values": lambda: lambda t, layers, heads, dim, size: t * layers * heads * dim * size,
        "one layer": lambda: lambda t, layers, heads, dim, size: t * 2 * heads * dim * size,
        "numbers instead of bytes": lambda: lambda t, layers, heads, dim, size: t * layers * 2 * heads * dim,
        "squared in tokens": lambda: lambda t, layers, heads, dim, size: t * t * layers * 2 * heads * dim * size,
    },
)
def size_of_cache(answer: Any, probe: Probe) -> None:
    """answer(tokens, layers, kv_heads, head_dim, bytes_per_number) -> bytes."""
    probe.step("it is a function")
    probe.function(answer, "cache_bytes")
    probe.step("the smallest model there is: 1 token, 1 layer, 1 head of 1 number of 1 byte")
    probe.equal(answer(1, 1, 1, 1, 1), 2, "cache_bytes(1, 1, 1, 1, 1)")
    probe.step("SmolLM2-135M in float32: 30 layers, 3 key/value heads of 64")
    probe.equal(answer(1, 30, 3, 64, 4), 46080, "cache_bytes(1, 30, 3, 64, 4)")
    probe.step("Llama-3-8B in 16 bits: 32 layers, 8 key/value heads of 128, 4,096 tokens")
    probe.equal(answer(4096, 32, 8, 128, 2), 4096 * 131072, "cache_bytes(4096, 32, 8, 128, 2)")
    probe.step("no token, no cache")
    probe.equal(answer(0, 32, 8, 128, 2), 0, "cache_bytes(0, 32, 8, 128, 2)")


def work_ratio(output_tokens: int) -> float:
    """Tokens computed without a cache over tokens computed with one, for a prompt of PROMPT tokens; both counted."""
    from lab.running import run

    work = fixed_workload([PROMPT], [output_tokens])
    bare = run_planted(work, Priced(), without_cache, chunking="whole")
    return bare.computed_tokens / run(work, Priced(), batching="continuous:1").computed_tokens


def first_length() -> int:
    """The answer to 01.3, in closed form: n P + n (n - 1) / 2 >= TIMES (P + n - 1)."""
    n = 1
    while n * PROMPT + n * (n - 1) // 2 < TIMES * (PROMPT + n - 1):
        n += 1
    return n


@exercise(
    "01.3",
    f"How long until the cache saves {TIMES - 1} of {TIMES} tokens?",
    hints=(
        "Try a few lengths with work_ratio and watch the ratio grow.",
        f"Stop at the first length for which work_ratio(length) is at least {TIMES}.",
        f"next(n for n in range(1, 200) if work_ratio(n) >= {TIMES})",
    ),
    solution=first_length,
    wrong={
        "one token too early": lambda: first_length() - 1,
        "one token too late": lambda: first_length() + 1,
        "the ratio itself": lambda: TIMES,
    },
)
def recompute_ratio(answer: Any, probe: Probe) -> None:
    """answer is a number of output tokens."""
    probe.step("it is a number of output tokens")
    whole = type(answer) in (int, float) and answer == answer and 1 <= answer <= 500 and answer == int(answer)
    probe.true(whole, "a whole number of output tokens, from 1 to 500")
    n = int(answer)
    probe.step(f"at that length, without a cache, {TIMES} times as many tokens are computed")
    ratio = work_ratio(n)
    probe.true(ratio >= TIMES, f"with {n} output tokens it is {ratio:.2f} times as many")
    probe.step("and at no shorter length")
    probe.true(work_ratio(n - 1) < TIMES, f"{n - 1} output tokens are enough already")


def recomputing_steps(trace: RunTrace) -> list[int]:
    """A solution of 01.4."""
    found, started = [], set()
    for step in trace:
        for row in step.rows:
            if row.request in started and row.num_tokens > 1:
                found.append(step.index)
            if row.sampled:
                started.add(row.request)
    return found


def _prefills_too(trace: RunTrace) -> list[int]:
    return [step.index for step in trace if step.computed > 1]


def _all_but_the_first(trace: RunTrace) -> list[int]:
    return [step.index for step in trace if step.index and step.computed > 1]


def _trace(plant: Any, prompt: int, output: int, **options: Any) -> RunTrace:
    return run_planted(fixed_workload([prompt], [output]), Priced(), plant, **options).trace


def _healthy(engine: Engine) -> None:
    pass


@exercise(
    "01.4",
    "Break it: a cache that is lost",
    hints=(
        "Look at step.computed for every step. Which ones stand out once the first token is out?",
        "The first step, or steps, compute the prompt and are healthy. Afterwards every step should compute 1 token.",
        "Remember whether a step with row.sampled has come before; from then on a row with num_tokens > 1 is a find.",
    ),
    solution=lambda: recomputing_steps,
    wrong={
        "prompts count too": lambda: _prefills_too,
        "prompts of one step only": lambda: _all_but_the_first,
        "nothing found": lambda: lambda trace: [],
        "every step": lambda: lambda trace: [step.index for step in trace],
        "only the first find": lambda: lambda trace: recomputing_steps(trace)[:1],
    },
)
def lost_cache(answer: Any, probe: Probe) -> None:
    """answer(trace) -> list of step indices."""
    probe.step("it is a function")
    probe.function(answer, "recomputing_steps")
    probe.step("a healthy run: nothing to report")
    probe.equal(answer(_trace(_healthy, 30, 40)), [], "recomputing_steps(healthy)")
    probe.step(
        "a healthy run with a prompt in several chunks: still nothing",
        "A long prompt may take several steps before the first token. That is no recomputing.",
    )
    probe.equal(answer(_trace(_healthy, 70, 12, chunking="budget:32")), [], "recomputing_steps(prompt in chunks)")
    probe.step("the broken engine")
    for prompt, output in ((20, 40), (43, 48), (5, 90)):
        trace = _trace(cache_lost_with_each_block, prompt, output)
        probe.equal(answer(trace), recomputing_steps(trace), f"recomputing_steps(prompt {prompt}, output {output})")
