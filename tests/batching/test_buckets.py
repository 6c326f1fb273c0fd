from __future__ import annotations

import random

import pytest
from harness import Stepper, assert_solo, make_engine, request, run_all

from lab.batching.served import batches
from lab.batching.static import Static
from lab.clock import Driver, VirtualClock
from lab.errors import BadPolicy


def test_a_batch_starts_when_one_bucket_is_full_not_when_enough_wait() -> None:
    engine = make_engine(batching="static:2:10")
    engine.more_expected = True
    stepper = Stepper(engine, [request(0, 5), request(1, 15), request(2, 25)])
    assert stepper.step() is None  # three wait, none finds its like
    engine.submit(request(3, 19))
    assert sorted(row.request for row in stepper.step().rows) == [1, 3]


def test_of_several_full_buckets_the_one_that_filled_first_goes() -> None:
    lengths = [3, 13, 14, 4, 23]
    engine = make_engine(batching="static:2:10")
    engine.more_expected = True
    stepper = Stepper(engine, [request(id, length, arrival=id / 10) for id, length in enumerate(lengths)])
    assert sorted(row.request for row in stepper.step().rows) == [1, 2]


def test_lengths_on_the_edge_of_a_bucket() -> None:
    policy = Static(8, bucket=10)
    assert [policy._bucket(request(0, length)) for length in (1, 10, 11, 20, 21)] == [0, 0, 1, 1, 2]


def test_what_is_left_at_the_end_runs_bucket_by_bucket() -> None:
    requests = [request(id, length, 1) for id, length in enumerate([25, 3, 26, 4, 15])]
    steps = Stepper(make_engine(batching="static:3:10"), requests).run()
    assert [sorted(row.request for row in step.rows) for step in steps] == [[0, 2], [1, 3], [4]]
    assert_solo(requests)


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_padded_by_less_than_a_bucket_and_everybody_gets_his_tokens(seed: int) -> None:
    draw = random.Random(seed)
    requests = [request(id, draw.randint(1, 60), draw.randint(1, 5)) for id in range(40)]
    engine = run_all(requests, blocks=400, batching="static:4:8")
    assert all(row.padding < 8 for step in engine.trace for row in step.rows if row.start == 0 and row.num_tokens)
    assert_solo(requests)
    plain = [request(each.id, each.num_prompt, each.sampling.max_tokens) for each in requests]
    padding = [
        sum(step.padded for step in run.trace) for run in (engine, run_all(plain, blocks=400, batching="static:4"))
    ]
    assert padding[0] < padding[1]


def test_waste_is_counted_per_batch() -> None:
    # prompts 3, 5, 4 padded to 5; outputs 2, 4, 1 (see test_static); then one alone
    requests = [request(0, 3, 2), request(1, 5, 4), request(2, 4, 1), request(3, 2, 2)]
    engine = run_all(requests, batching="static:3")
    first, second = batches(engine.trace)
    assert (first.size, first.computed, first.padded, first.wasted_slots) == (3, 16, 8, 5)
    assert first.waste == 8 / 24
    assert (second.size, second.computed, second.padded, second.wasted_slots) == (1, 3, 0, 0)
    assert (first.start, first.end, second.end) == (0.0, second.start, engine.trace[-1].end)
    assert sum(batch.padded for batch in (first, second)) == sum(step.padded for step in engine.trace)


def test_samples_forked_in_a_batch_do_not_begin_a_new_one() -> None:
    requests = [request(0, 6, 4, n=3), request(1, 5, 4)]
    engine = make_engine(batching="static:2")
    Driver(engine, requests, VirtualClock()).run()
    assert [batch.size for batch in batches(engine.trace)] == [4]


def test_a_bucket_has_a_width() -> None:
    with pytest.raises(BadPolicy, match="buckets of width 0"):
        Static(8, bucket=0)
