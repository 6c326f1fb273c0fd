"""Random traffic over random sizes and axes; every invariant after every step, every token against `solo`.

A thousand runs by default; LAB_FUZZ=10000 makes more, LAB_FUZZ_SEED=n starts elsewhere. A failure names its seed.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from harness import Stepper, make_engine, preemptions, request
from oracles import assert_books_balance, solo

from lab.batching.continuous import Continuous
from lab.batching.static import Static
from lab.chunking import TokenBudget, WholePrompt
from lab.errors import NeverFits
from lab.metrics import Report
from lab.request import Request

RUNS = int(os.environ.get("LAB_FUZZ", "1000"))
FIRST = int(os.environ.get("LAB_FUZZ_SEED", "0"))
PARTS = 8


class Shuffled:
    """A moving key without meaning: any order must give the same tokens."""

    name, static = "shuffled-test", False

    def key(self, each: Request, now: float) -> float:
        return hash((each.id, int(now * 50))) % 97


class Largest:
    """A static key."""

    name, static = "largest-test", True

    def key(self, each: Request, now: float) -> float:
        return -each.num_prompt


def random_axes(draw: random.Random) -> dict:
    axes = dict(
        batching=draw.choice([Static, Continuous])(draw.randint(1, 6)),
        chunking=draw.choice([WholePrompt(), TokenBudget(draw.choice([1, 2, 3, 5, 8, 16, 40]))]),
    )
    if draw.random() < 0.3:
        axes["ordering"] = draw.choice([Shuffled(), Largest()])
    if draw.random() < 0.3:
        axes["attention"] = draw.choice(["packed", "padded"])
    return axes


def random_requests(draw: random.Random, capacity: int) -> list[Request]:
    """Prompts and outputs from tiny to the whole pool; now and then one that can never fit."""
    made = []
    for id in range(draw.randint(1, 9)):
        total = draw.randint(2, capacity + 1) if draw.random() < 0.5 else draw.randint(2, min(capacity + 1, 12))
        if draw.random() < 0.06:
            total = capacity + draw.randint(2, 9)
        limit = draw.randint(1, min(total - 1, 24))
        made.append(
            request(
                id,
                total - limit,
                limit,
                arrival=draw.choice([0.0, draw.random() * 0.3]),
                priority=draw.choice([0] * 6 + [1, -1]),
                stop_token_ids=tuple(range(draw.randint(0, 19), 1000, 20)) if draw.random() < 0.3 else (),
                ignore_eos=draw.random() < 0.3,
            )
        )
    return sorted(made, key=lambda each: each.order)


def drive(draw: random.Random, seed: int, counts: Counter) -> None:
    block_size = draw.choice([1, 2, 3, 4, 8])
    blocks = draw.randint(2, 14)
    axes, eos = random_axes(draw), range(draw.randint(0, 39), 1000, 40)
    engine = make_engine(blocks=blocks, block_size=block_size, eos=eos, **axes)
    requests = random_requests(draw, blocks * block_size)
    coming, stepper = list(requests), Stepper(engine)
    aborting, changing = draw.random() < 0.3, draw.random() < 0.15
    while coming or not engine.idle:
        while coming and coming[0].arrival_time <= stepper.now:
            engine.submit(coming.pop(0))
        engine.more_expected = bool(coming)
        if aborting and draw.random() < 0.08:
            engine.abort(draw.randrange(len(requests) + 1))
        if changing and draw.random() < 0.08:
            fresh = random_axes(draw)
            engine.reconfigure(**{name: fresh[name] for name in ("batching", "chunking")})
        if stepper.step() is None:
            if coming:
                stepper.now = max(stepper.now, coming[0].arrival_time)
            else:
                assert engine.idle, "nothing is planned although somebody waits"
        assert len(engine.trace) < 5000, "no end"
    check_end(engine, requests, frozenset(eos), counts)


def check_end(engine, requests: list[Request], eos: frozenset[int], counts: Counter) -> None:
    for each in requests:
        expected = solo(list(each.prompt), each.sampling, eos)
        needs, has = engine.memory.blocks_for(each.max_total), engine.memory.num_blocks
        assert (each.finish_reason == "refused") == (needs > has)
        if each.finish_reason == "refused":
            assert isinstance(each.error, NeverFits) and (each.error.needs, each.error.has) == (needs, has)
            assert not each.output
        elif each.finish_reason == "abort":
            assert each.output == expected[: len(each.output)]
        else:
            assert each.output == expected and each.num_computed == each.num_tokens - 1
        counts[each.finish_reason] += 1
    assert_books_balance(engine)
    report = Report.from_trace(engine.flush())
    ended = [each for each in requests if each.finish_reason != "refused"]
    assert report.computed_tokens == sum(each.num_computed for each in ended) + report.dropped_tokens
    assert report.computed_tokens == engine.runner.computed
    assert report.recomputed_tokens <= report.dropped_tokens
    assert report.outputs == {each.id: each.output for each in requests}
    assert preemptions(engine) == report.preemptions == sum(each.num_preemptions for each in requests)
    assert report.preemptions <= sum(each.num_output + 1 for each in requests)
    counts.update(steps=report.steps, preemptions=report.preemptions, carried=report.wasted_slots)


def fly(draw: random.Random, counts: Counter) -> None:
    """Up to three flights at once, landing in any order, with aborts in between."""
    blocks, block_size = draw.randint(4, 16), draw.choice([1, 2, 4])
    engine = make_engine(
        blocks=blocks,
        block_size=block_size,
        batching=Continuous(draw.randint(1, 6)),
        chunking=TokenBudget(draw.choice([1, 3, 8, 40])),
    )
    requests = random_requests(draw, blocks * block_size)
    coming, flights, now, turns = list(requests), [], 0.0, 0
    while coming or not engine.idle:
        now, turns = now + 0.01, turns + 1
        assert turns < 20_000, "no end"
        if coming and draw.random() < 0.5:
            engine.submit(coming.pop(0))
        if draw.random() < 0.03:
            engine.abort(draw.randrange(len(requests)))
        if len(flights) < 3 and draw.random() < 0.7:
            flight = engine.begin(now)
            if flight is not None:
                engine.execute(flight)  # a runner may be ahead of the books by several steps
                flights.append(flight)
        flying = [row.request for flight in flights for row in flight.plan.rows]
        assert len(flying) == len(set(flying)), "two flights share a request"
        assert all(each.in_flight and each.status == "running" for each in flying)
        if flights and draw.random() < 0.6:
            engine.commit(flights.pop(draw.randrange(len(flights))), now)
        counts["three at once"] += len(flights) == 3
    assert not any(each.in_flight for each in requests)
    for each in requests:
        expected = solo(list(each.prompt), each.sampling, frozenset())
        assert each.output == (expected if each.finish_reason in ("stop", "length") else expected[: len(each.output)])
        counts[each.finish_reason] += 1
    counts["preemptions"] += preemptions(engine)
    assert_books_balance(engine)


@pytest.mark.parametrize("part", range(PARTS))
def test_random_flights(part: int) -> None:
    counts: Counter = Counter()
    for seed in range(FIRST + part, FIRST + RUNS // 4, PARTS):
        try:
            fly(random.Random(seed), counts)
        except Exception as error:
            error.add_note(f"LAB_FUZZ_SEED={seed} LAB_FUZZ=4 repeats this run")
            raise
    if RUNS >= 1000:
        for corner in ("length", "abort", "preemptions", "three at once"):
            assert counts[corner] > 0, counts


@pytest.mark.parametrize("part", range(PARTS))
def test_random_traffic(part: int) -> None:
    counts: Counter = Counter()
    for seed in range(FIRST + part, FIRST + RUNS, PARTS):
        try:
            drive(random.Random(seed), seed, counts)
        except Exception as error:
            error.add_note(f"LAB_FUZZ_SEED={seed} LAB_FUZZ=1 repeats this run")
            raise
    if RUNS >= 1000:  # the traffic reached every corner
        for corner in ("stop", "length", "abort", "refused", "preemptions", "carried"):
            assert counts[corner] > 10, counts
