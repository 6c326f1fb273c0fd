"""Orders that know the prefix cache: hit rates, starvation and its cure, and the oracle."""

from __future__ import annotations

import itertools
import random

import pytest
from oracles import HashModel, assert_books_balance, solo

from lab.clock import Driver, VirtualClock
from lab.engine import Engine
from lab.errors import BadPolicy
from lab.metrics import request_times
from lab.ordering.prefix import KLpm
from lab.request import Request, SamplingParams
from lab.running import build_engine

ORDERS = ("fcfs", "longest-prefix", "hrrn", "k-lpm:2", "depth-first", "aged:longest-prefix:0.2s")


def ask(id: int, prompt: list[int], arrival: float = 0.0, max_tokens: int = 1) -> Request:
    return Request(id, prompt, SamplingParams(max_tokens=max_tokens), arrival)


def drive(requests: list[Request], ordering: str, **options) -> Engine:
    options = {"blocks": 12, "block_size": 2, "prefix_cache": "radix", "batching": "continuous:1"} | options
    engine = build_engine(HashModel(frozenset()), requests, ordering=ordering, **options)
    engine.check_every_step = True
    Driver(engine, requests, VirtualClock()).run()
    for request in requests:
        assert request.output == solo(request.prompt, request.sampling, frozenset())
    assert_books_balance(engine)
    return engine


def admitted(engine: Engine) -> list[int]:
    return [event.request for event in engine.trace.events() if event.kind == "admitted"]


def cached(engine: Engine) -> int:
    return sum(request.num_cached for request in engine.requests.values())


def families(seed: int = 0) -> list[Request]:
    """Twelve prompts of three families whose members come interleaved."""
    return [ask(i, [(i % 3) * 100 + j for j in range(8)] + [900 + i, i], arrival=0.001 * i) for i in range(12)]


@pytest.mark.parametrize("cache", ["hash", "radix"])
@pytest.mark.parametrize("ordering", ORDERS)
def test_every_order_gives_the_same_tokens(ordering: str, cache: str) -> None:
    drive(families(), ordering, prefix_cache=cache)


def test_longest_prefix_first_saves_what_interleaving_evicts() -> None:
    saved = {order: cached(drive(families(), order, blocks=6)) for order in ("fcfs", "longest-prefix", "depth-first")}
    assert saved["fcfs"] == 0, "with room for one prompt each family evicts the one before"
    assert saved["longest-prefix"] == saved["depth-first"] == 9 * 8


def test_a_stranger_starves_under_longest_prefix_and_ageing_bounds_it() -> None:
    """A steady stream that shares a prefix; one early request that shares nothing (sglang #31954)."""
    waits = {}
    for order in ("longest-prefix", "aged:longest-prefix:0.3s", "k-lpm:4", "hrrn"):
        stream = [ask(i, list(range(8)) + [500 + i], arrival=0.008 * i) for i in range(150)]
        stranger = ask(999, [700 + j for j in range(9)], arrival=0.02)
        engine = drive([*stream, stranger], order, blocks=20)
        times = request_times(engine.trace)[999]
        waits[order] = times.admitted - times.arrival
    last = 150 * 0.008
    assert waits["longest-prefix"] > last - 0.1, "served when the stream has ended"
    assert waits["aged:longest-prefix:0.3s"] < 0.35
    assert waits["k-lpm:4"] < 0.1
    assert waits["hrrn"] < last / 2


def test_k_lpm_gives_every_kth_turn_to_the_oldest() -> None:
    requests = [ask(i, [i % 2, i % 2, i, i], arrival=0.0001 * i) for i in range(8)]
    turns = admitted(drive(requests, "k-lpm:4", blocks=30))
    assert turns[0] == 0 and sorted(turns) == list(range(8))
    left = [request for request in range(8) if request not in turns[:4]]
    assert turns[4] == min(left)
    assert turns[1:4] == [2, 4, 6], "the three matches between two turns of the oldest share its first block"


def test_k_lpm_with_k_1_is_first_come_first_served() -> None:
    assert admitted(drive(families(), "k-lpm:1")) == list(range(12))
    with pytest.raises(BadPolicy, match="k -1; it must be at least 1"):
        KLpm(-1)


def test_matching_is_against_the_whole_prompt_not_the_first_chunk() -> None:
    """Two prompts share their first chunk with the cache; only one shares what comes after it."""
    base = list(range(20))
    first = ask(0, base)
    shallow = ask(1, base[:4] + [600 + j for j in range(16)], arrival=0.001)
    deep = ask(2, base[:18] + [800, 801], arrival=0.002)
    engine = drive([first, shallow, deep], "longest-prefix", chunking="budget:4", blocks=40)
    assert admitted(engine) == [0, 2, 1]
    assert (deep.num_cached, shallow.num_cached) == (18, 4)


def best_hits(prompts: list[list[int]], capacity: int) -> int:
    """Most cached tokens over every order of serving, one at a time (brute force)."""
    best = 0
    for order in itertools.permutations(range(len(prompts))):
        requests = [ask(place, prompts[index], arrival=0.0) for place, index in enumerate(order)]
        engine = build_engine(
            HashModel(frozenset()), requests, blocks=capacity, block_size=1, prefix_cache="radix",
            batching="continuous:1",
        )  # fmt: skip
        Driver(engine, requests, VirtualClock()).run()
        best = max(best, cached(engine))
    return best


@pytest.mark.parametrize("seed", range(8))
def test_depth_first_is_optimal_on_a_static_batch(seed: int) -> None:
    draw = random.Random(seed)
    prompts = [[draw.randrange(2) for _ in range(draw.randint(2, 5))] + [50 + i] for i in range(5)]
    capacity = max(len(prompt) for prompt in prompts)
    requests = [ask(i, prompt) for i, prompt in enumerate(prompts)]
    engine = drive(requests, "depth-first", blocks=capacity, block_size=1)
    assert cached(engine) == best_hits(prompts, capacity)
