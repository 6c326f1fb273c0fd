"""Prefix caches, swapping and forks through the engine: tokens, counters, books."""

from __future__ import annotations

import random

import pytest
from oracles import VOCAB, HashModel, assert_books_balance, solo

from lab.clock import Driver, VirtualClock
from lab.engine import Engine
from lab.metrics import Report
from lab.request import Request, SamplingParams
from lab.running import build_engine

CACHES = ("hash", "radix")


def drive(requests: list[Request], **options) -> tuple[Engine, Report]:
    """Run to the end with every book recounted each step; every token is checked against `solo`."""
    engine = build_engine(HashModel(frozenset()), requests, **({"blocks": 64, "block_size": 4} | options))
    engine.check_every_step = True
    trace = Driver(engine, requests, VirtualClock()).run()
    for request in engine.requests.values():
        assert request.output == solo(request.prompt, request.sampling, frozenset()), request.id
    assert_books_balance(engine)
    return engine, Report.from_trace(trace)


def ask(id: int, prompt: list[int], arrival: float = 0.0, max_tokens: int = 4, **sampling) -> Request:
    return Request(id, prompt, SamplingParams(max_tokens=max_tokens, **sampling), arrival)


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("length", [8, 9, 11, 12])
def test_pitfall_16_a_whole_prompt_hit_still_computes_a_token(cache: str, length: int) -> None:
    prompt = list(range(length))
    engine, report = drive([ask(0, prompt), ask(1, prompt, arrival=5.0)], prefix_cache=cache)
    cached = (length - 1) // 4 * 4
    assert engine.requests[1].num_cached == report.cached_tokens == cached
    first = next(step for step in engine.trace if any(row.request == 1 for row in step.rows))
    assert first.rows[0].num_tokens == length - cached >= 1


@pytest.mark.parametrize("cache", CACHES)
def test_pitfall_19_two_equal_prompts_in_one_step_do_not_share_before_commit(cache: str) -> None:
    prompt = list(range(13))
    engine, report = drive([ask(0, prompt, max_tokens=9), ask(1, prompt, max_tokens=9)], prefix_cache=cache)
    assert report.cached_tokens == 0 and report.computed_tokens == 2 * (13 + 8)
    assert report.peak_blocks < 2 * 6, "but once both are computed, one copy serves both"


@pytest.mark.parametrize("cache", CACHES)
def test_pitfall_22_the_whole_prompt_is_matched_before_chunking(cache: str) -> None:
    prompt = list(range(40))
    engine, _ = drive([ask(0, prompt), ask(1, prompt, 9.0)], prefix_cache=cache, chunking="budget:8")
    assert engine.requests[1].num_cached == 36, "far more than one chunk of 8"


@pytest.mark.parametrize("cache", CACHES)
def test_pitfall_24_the_counter_of_computed_tokens_falls_by_exactly_the_cached_ones(cache: str) -> None:
    shared = list(range(30))
    prompts = [shared + [100 + i, 200 + i] for i in range(6)]
    make = lambda: [ask(i, prompt, arrival=2.0 * i) for i, prompt in enumerate(prompts)]  # noqa: E731
    _, plain = drive(make())
    _, cached = drive(make(), prefix_cache=cache)
    assert cached.cached_tokens == 5 * 28
    assert plain.computed_tokens - cached.computed_tokens == cached.cached_tokens
    assert cached.tokens_sha256 == plain.tokens_sha256


@pytest.mark.parametrize("cache", CACHES)
def test_answers_are_cached_too(cache: str) -> None:
    """The next turn of a conversation begins with the prompt and the answer of the one before."""
    first = ask(0, list(range(9)), max_tokens=8)
    follow = list(range(9)) + solo(list(range(9)), first.sampling, frozenset()) + [900]
    engine, _ = drive([first, ask(1, follow, arrival=9.0)], prefix_cache=cache)
    assert engine.requests[1].num_cached == 16, "the last generated token was never computed"


@pytest.mark.parametrize("cache", CACHES)
def test_pitfall_13_after_preemption_the_prefix_is_found_again(cache: str) -> None:
    requests = [ask(i, [i * 50 + j for j in range(9)], max_tokens=14) for i in range(3)]
    _, report = drive(requests, blocks=10, prefix_cache=cache)
    assert report.preemptions > 0 and report.cached_tokens > 0
    assert report.recomputed_tokens < report.dropped_tokens, "what was still cached is not computed again"


@pytest.mark.parametrize("cache", CACHES)
def test_pitfall_23_a_partly_filled_block_is_never_shared(cache: str) -> None:
    shared = list(range(10))  # two and a half blocks
    engine, _ = drive([ask(0, shared), ask(1, shared + [77], 3.0), ask(2, shared + [88], 3.0)], prefix_cache=cache)
    assert engine.requests[1].num_cached == engine.requests[2].num_cached == 8


@pytest.mark.parametrize("cache", CACHES)
def test_cached_blocks_give_way_to_running_requests(cache: str) -> None:
    requests = [ask(i, [i * 60 + j for j in range(20)], arrival=float(i), max_tokens=8) for i in range(8)]
    engine, report = drive(requests, blocks=9, prefix_cache=cache)
    assert report.preemptions == 0
    assert engine.memory.counts().cached > 0


def test_swapping_drops_nothing_and_computes_nothing_twice() -> None:
    requests = [ask(i, [i * 50 + j for j in range(9)], max_tokens=14) for i in range(3)]
    _, report = drive(requests, blocks=10, preemption="swap")
    assert report.preemptions > 0
    assert report.dropped_tokens == report.recomputed_tokens == 0


def test_swapping_without_room_on_the_host_recomputes() -> None:
    requests = [ask(i, [i * 50 + j for j in range(9)], max_tokens=14) for i in range(3)]
    _, report = drive(requests, blocks=10, preemption="swap", host_blocks=1)
    assert report.preemptions > 0 and report.recomputed_tokens > 0


@pytest.mark.parametrize("cache", ("none", *CACHES))
def test_parallel_samples_share_the_prompt_s_blocks(cache: str) -> None:
    prompt = list(range(18))
    engine, report = drive([ask(0, prompt, max_tokens=6, n=4)], prefix_cache=cache)
    assert sorted(engine.requests) == [sample << 32 for sample in range(4)]
    assert report.computed_tokens == 18 + 3 + 4 * 5, "the prompt once, its last token for each further sample"
    # 4 full blocks shared, then blocks 5 and 6 (positions 16 to 22) for each of the four; a cache finds that greedy
    # samples are equal and lets them share the fifth too, once it is full
    assert report.peak_blocks == (4 + 4 * 2 if cache == "none" else 4 + 1 + 4)


def test_samples_survive_preemption() -> None:
    _, report = drive([ask(0, list(range(18)), max_tokens=20, n=4)], blocks=14)
    assert report.preemptions > 0


def test_fuzz_of_caches_swap_forks_aborts_and_reservations() -> None:
    totals = {"cached_tokens": 0, "preemptions": 0, "recomputed_tokens": 0}
    for seed in range(300):
        draw = random.Random(seed)
        engine, requests = random_engine(draw)
        driver = Driver(engine, requests, VirtualClock())
        while not driver.done:
            driver.tick()
            if draw.random() < 0.02 and engine.requests:
                engine.abort(draw.choice(list(engine.requests)))
        engine.flush()
        for request in engine.requests.values():
            if request.finish_reason != "abort":
                assert request.output == solo(request.prompt, request.sampling, frozenset()), (seed, request.id)
        assert_books_balance(engine)
        report = Report.from_trace(engine.trace)
        totals = {name: total + getattr(report, name) for name, total in totals.items()}
    assert all(totals.values()), totals


def random_engine(draw: random.Random) -> tuple[Engine, list[Request]]:
    """Requests that share prefixes, in a pool that is often tiny."""
    size = draw.choice([1, 2, 4, 16])
    roots = [[draw.randrange(VOCAB) for _ in range(40)] for _ in range(2)]
    paged = draw.random() < 0.8
    requests = []
    for id in range(draw.randint(1, 12)):
        prompt = draw.choice(roots)[: draw.randint(0, 40)] + [draw.randrange(VOCAB) for _ in range(draw.randint(1, 9))]
        n = draw.choice([1, 1, 1, 3]) if paged else 1
        requests.append(ask(id, prompt, draw.random() / 2, draw.randint(1, 30), n=n))
    largest = max(-(-(r.num_prompt + r.sampling.max_tokens) // size) for r in requests)
    options = {
        "blocks": largest + draw.choice([0, 1, 5, 500]) if paged else 4096 // size,
        "memory": "paged" if paged else draw.choice(["reserved:max", "reserved:pow2", "reserved:oracle"]),
        "prefix_cache": draw.choice(["none", "hash", "radix"]) if paged else "none",
        "preemption": draw.choice(["recompute", "swap"]) if paged else "recompute",
        "batching": draw.choice(["static:3", "continuous:4", "continuous:16"]),
        "chunking": draw.choice(["whole", "budget:1", "budget:7", "budget:64"]),
        "block_size": size,
    }
    if options["preemption"] == "swap":
        options["host_blocks"] = draw.choice([2, None])
    engine = build_engine(HashModel(frozenset()), requests, **options)
    engine.check_every_step = True
    return engine, requests


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("blocks", [1, 4, 5])
def test_samples_of_a_prompt_that_ends_at_a_block_boundary_fit_the_smallest_pool(cache: str, blocks: int) -> None:
    """A full last block is in the cache: a fork that listed it could neither write it nor let it be evicted."""
    prompt = list(range(4 * blocks))
    engine, report = drive([ask(0, prompt, max_tokens=1, n=3)], blocks=blocks, prefix_cache=cache)
    assert report.finished == 3
