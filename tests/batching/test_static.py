from __future__ import annotations

import math

import pytest
from harness import Stepper, assert_solo, make_engine, request, run_all

from lab.batching.continuous import Continuous
from lab.batching.protocol import QueueView
from lab.batching.static import Static
from lab.errors import BadPolicy


@pytest.mark.parametrize("policy", [Static, Continuous])
@pytest.mark.parametrize("value", [0, -1])
def test_sizes_must_be_at_least_one(policy: type, value: int) -> None:
    with pytest.raises(BadPolicy, match=f"{value}; it must be at least 1"):
        policy(value)


@pytest.mark.parametrize("policy", [Static, Continuous])
@pytest.mark.parametrize("value", [math.nan, math.inf, 2.5, "8", True])
def test_sizes_must_be_whole_numbers(policy: type, value: object) -> None:
    with pytest.raises(BadPolicy, match=str(value)):
        policy(value)


@pytest.mark.parametrize(
    ("waiting", "running", "more", "slots"),
    [
        (3, 0, True, 0),  # not full, more may come
        (4, 0, True, 4),
        (9, 0, True, 4),
        (3, 0, False, 4),  # starts short
        (9, 1, True, 0),  # the batch runs
        (9, 1, False, 0),
        (0, 0, False, 0),
    ],
)
def test_a_static_batch_starts_full_or_when_nobody_can_come(waiting: int, running: int, more: bool, slots: int):
    assert Static(4).admit(QueueView(1.0, waiting, 0.5 if waiting else None, running, more)).slots == slots


def test_nobody_joins_before_the_last_of_the_batch_is_done() -> None:
    requests = [request(0, 3, 2), request(1, 5, 6), request(2, 4, 3)]
    engine = run_all(requests, batching="static:2")
    batches = [sorted(row.request for row in step.rows) for step in engine.trace]
    assert batches == [[0, 1]] * 6 + [[2]] * 3
    assert_solo(requests)


def test_padding_and_wasted_slots_of_a_batch_worked_out_by_hand() -> None:
    # prompts 3, 5, 4 padded to 5; outputs 2, 4, 1: row 2 is carried in steps 2-4, row 0 in steps 3-4
    requests = [request(0, 3, 2), request(1, 5, 4), request(2, 4, 1)]
    steps = Stepper(make_engine(batching="static:3"), requests).run()
    assert [(step.computed, step.padded, step.carried) for step in steps] == [
        (12, (5 - 3) + (5 - 4), 0),
        (2, 1, 1),
        (1, 2, 2),
        (1, 2, 2),
    ]
    assert all(step.attention == "padded" for step in steps)


def test_carried_rows_cost_one_token_each_with_the_packed_kernel() -> None:
    requests = [request(0, 3, 1), request(1, 5, 3)]
    steps = Stepper(make_engine(batching="static:2", attention="packed"), requests).run()
    assert [(step.computed, step.padded, step.carried) for step in steps] == [(8, 0, 0), (1, 1, 1), (1, 1, 1)]


def test_a_static_batch_in_chunks_is_admitted_together_beyond_the_budget() -> None:
    requests = [request(id, 6, 3) for id in range(3)]
    engine = make_engine(batching="static:3", chunking="budget:4")
    stepper = Stepper(engine, requests)
    stepper.step()
    assert [each.status for each in requests] == ["running"] * 3
    stepper.run()
    assert_solo(requests)


def test_static_waits_until_the_driver_says_that_nobody_comes() -> None:
    engine = make_engine(batching="static:2")
    engine.more_expected = True
    stepper = Stepper(engine, [request(0, 3)])
    assert stepper.step() is None and not engine.idle
    engine.more_expected = False
    assert stepper.step() is not None
    stepper.run()


def test_a_pool_too_small_for_the_batch_starts_those_that_fit() -> None:
    requests = [request(id, 8, 1) for id in range(3)]
    steps = Stepper(make_engine(blocks=4, batching="static:3"), requests).run()
    assert [sorted(row.request for row in step.rows) for step in steps] == [[0, 1], [2]]
