"""Lanes on one device: work is conserved, like slows like, and unlike overlaps."""

from __future__ import annotations

import random

import pytest

import lab
from lab.errors import BadPolicy
from lab.plan import BlockCopy, Row, StepPlan
from lab.request import Request
from lab.simulation.lanes import Demand, SharedDevice


def drive(flights: list[tuple[float, Demand]], fraction: float = 1.0) -> dict[int, float]:
    """Start each flight at its time and let all end: {place in the list: when it ended}."""
    shared, ends, waiting = SharedDevice(), {}, sorted(enumerate(flights), key=lambda item: item[1][0])
    while waiting or len(shared):
        end = shared.next_end()
        if waiting and (end is None or waiting[0][1][0] <= end):
            key, (start, demand) = waiting.pop(0)
            ended = shared.finish(start) if end is not None else []
            shared.start(key, demand, start, fraction)
            ends |= {each: start for each in ended}
        else:
            ends |= {key: end for key in shared.finish(end)}
    return ends


def decode(rows: int, context: int) -> StepPlan:
    return StepPlan([Row(Request(i, None, num_prompt=context), context, 1, samples=True) for i in range(rows)])


def prompt(tokens: int) -> StepPlan:
    return StepPlan([Row(Request(0, None, num_prompt=tokens), 0, tokens, samples=True)])


def test_alone_a_step_takes_its_time_whatever_it_uses() -> None:
    assert drive([(0.5, Demand(2.0, 0.9, 0.9))])[0] == pytest.approx(2.5)


def test_two_equal_memory_bound_steps_gain_nothing() -> None:
    assert drive([(0, Demand(2.0, 0.1, 1.0))] * 2) == {0: pytest.approx(4.0), 1: pytest.approx(4.0)}


def test_what_uses_different_halves_overlaps_completely() -> None:
    ends = drive([(0, Demand(2.0, 0.9, 0.2)), (0, Demand(1.5, 0.1, 0.8))])
    assert ends == {0: pytest.approx(2.0), 1: pytest.approx(1.5)}


def test_a_late_starter_slows_only_what_is_left() -> None:
    # after 1 s alone the first has 1 s left, which takes 2 s beside the second; then the second has 1 s left, alone
    ends = drive([(0, Demand(2.0, 0.0, 1.0)), (1.0, Demand(2.0, 0.0, 1.0))])
    assert ends == {0: pytest.approx(3.0), 1: pytest.approx(4.0)}


def test_a_partition_keeps_arithmetic_free_for_the_other() -> None:
    shared = SharedDevice()
    shared.start("prefill", Demand(3.0, 0.9, 0.3), 0.0, fraction=0.6)
    assert shared.next_end() == pytest.approx(4.5)  # 0.9 / 0.6 times longer
    shared.start("decode", Demand(1.0, 0.1, 0.8), 0.0, fraction=0.4)
    assert shared.slowdown == pytest.approx(1.0)  # 0.3 / 1.5 + 0.8 of the bandwidth
    assert shared.finish(1.0) == ["decode"] and shared.next_end() == pytest.approx(4.5)


def test_work_is_conserved_and_nobody_is_faster_than_alone() -> None:
    draw = random.Random(5)
    for _ in range(100):
        flights = [
            (draw.random() * 3, Demand(draw.random() + 0.01, draw.random(), draw.random()))
            for _ in range(draw.randint(1, 8))
        ]
        ends = drive(flights)
        assert sorted(ends) == list(range(len(flights)))
        first, last = min(start for start, _ in flights), max(ends.values())
        for share in (1, 2):
            assert sum(demand[0] * demand[share] for _, demand in flights) <= (last - first) * (1 + 1e-9)
        for key, (start, demand) in enumerate(flights):
            assert ends[key] >= start + demand.seconds * (1 - 1e-9)
        assert last <= max(start for start, _ in flights) + sum(2 * demand.seconds for _, demand in flights)


def test_a_busy_resource_is_never_idle() -> None:
    flights = [(0.0, Demand(length, 0.3, 1.0)) for length in (0.5, 1.0, 2.5)]
    assert max(drive(flights).values()) == pytest.approx(4.0)


def test_two_decodes_of_a_real_model_take_as_long_as_both_in_a_row_but_for_their_overheads() -> None:
    runner = lab.simulated("llama-3-8b", "h100-sxm").runner(10)
    demand = runner.demand(decode(16, 500))
    assert demand.memory > 0.75 and demand.compute < 0.2
    end = drive([(0, demand), (0, demand)])[1]
    assert end == pytest.approx(2 * demand.memory * demand.seconds)
    assert 1.5 * demand.seconds < end < 2 * demand.seconds
    together = runner.demand(decode(32, 500)).seconds
    assert together < 0.75 * end  # one batch reads the weights once: batching beats streams


def test_a_prefill_beside_a_decode_overlaps() -> None:
    runner = lab.simulated("llama-3-8b", "h100-sxm").runner(10)
    long, short = runner.demand(prompt(4096)), runner.demand(decode(16, 500))
    assert long.compute > 0.8 and long.compute > long.memory
    assert max(drive([(0, long), (0, short)]).values()) < 0.97 * (long.seconds + short.seconds)


def test_copies_alone_want_memory_only() -> None:
    runner = lab.simulated().runner(10)
    demand = runner.demand(StepPlan([], copies=[BlockCopy("copy", 0, 1)]))
    assert demand.compute == 0 and demand.memory == 1 and demand.seconds > 0


def test_misuse_is_named() -> None:
    shared = SharedDevice()
    assert shared.next_end() is None and shared.finish(1.0) == []
    shared.start("a", Demand(1.0, 0.5, 0.5), 1.0)
    with pytest.raises(BadPolicy, match="'a' is in flight already"):
        shared.start("a", Demand(1.0, 0.5, 0.5), 1.0)
    with pytest.raises(BadPolicy, match="cannot go back to 0.5 s"):
        shared.start("b", Demand(1.0, 0.5, 0.5), 0.5)
    with pytest.raises(BadPolicy, match="ended at 2.0 s already"):
        shared.finish(3.0)
    with pytest.raises(BadPolicy, match="memory is 1.5; it must be at most 1"):
        shared.start("b", Demand(1.0, 0.5, 1.5), 1.0)
    with pytest.raises(BadPolicy, match="fraction of the arithmetic of 0"):
        shared.start("b", Demand(1.0, 0.5, 0.5), 1.0, fraction=0)
