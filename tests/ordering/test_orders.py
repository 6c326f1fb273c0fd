from __future__ import annotations

import random

import pytest
from harness import assert_solo, make_engine, request

from lab.axes import describe, parse
from lab.clock import Driver, VirtualClock
from lab.errors import BadPolicy
from lab.metrics import request_times
from lab.ordering.aged import Aged
from lab.ordering.arrival import Fcfs
from lab.ordering.deadline import EarliestDeadline, Hybrid
from lab.ordering.length import ShortestPrompt, ShortestRemaining
from lab.ordering.queue import WaitingQueue
from lab.request import Request, SamplingParams
from lab.running import build_engine
from lab.simulation.priced import Priced

ORDERS = [
    "fcfs",
    "shortest-prompt",
    "shortest-remaining",
    "earliest-deadline",
    "hybrid:0.01",
    "aged:shortest-prompt:5s",
    "aged:hybrid:1s:0.01",
    "aged:fcfs:0",
]


class Rotating:
    """A key that moves with time."""

    name = "rotating-test"
    static = False

    def key(self, request: Request, now: float) -> float:
        return (request.num_prompt + now) % 5


def made(id: int, prompt: int = 4, arrival: float = 0.0, deadline: float | None = None, priority: int = 0) -> Request:
    return Request(id, None, arrival_time=arrival, deadline=deadline, priority=priority, num_prompt=prompt)


def in_order(order: object, requests: list[Request], now: float = 0.0) -> list[int]:
    queue = WaitingQueue(order)
    for each in requests:
        queue.push(each, now)
    return [each.id for each in queue.first(len(requests), now)]


# -- keys ----------------------------------------------------------------------------------------------------
def test_shortest_prompt_first_ties_by_arrival() -> None:
    requests = [made(0, 9, 0.0), made(1, 3, 2.0), made(2, 3, 1.0), made(3, 5, 0.5)]
    assert in_order(ShortestPrompt(), requests) == [2, 1, 3, 0]


def test_shortest_remaining_counts_what_a_preempted_request_must_compute_again() -> None:
    again, swapped, fresh = made(0, 4), made(1, 40), made(2, 6)
    again.num_output = 5  # dropped: 9 tokens to compute
    swapped.num_output, swapped.num_computed = 5, 44  # kept: one token to compute
    assert in_order(ShortestRemaining(), [again, swapped, fresh]) == [1, 2, 0]
    assert in_order(ShortestPrompt(), [again, swapped, fresh]) == [0, 2, 1]


def test_earliest_deadline_first_and_none_last() -> None:
    requests = [made(0), made(1, deadline=5.0), made(2, deadline=3.0), made(3), made(4, deadline=3.0, arrival=1.0)]
    assert in_order(EarliestDeadline(), requests) == [2, 4, 1, 0, 3]


def test_hybrid_by_hand() -> None:
    assert Hybrid(0.01).key(made(0, 50, 2.0, deadline=3.0), 99.0) == pytest.approx(3.5)
    assert Hybrid(0.01, target=0.2).key(made(0, 50, 2.0), 99.0) == pytest.approx(2.7)


@pytest.mark.parametrize("seed", range(10))
def test_hybrid_lies_between_earliest_deadline_and_shortest_remaining(seed: int) -> None:
    draw = random.Random(seed)
    requests = [
        made(id, length, draw.uniform(0, 10), deadline=draw.uniform(0.5, 15.0))
        for id, length in enumerate(draw.sample(range(1, 400), 60))
    ]
    assert in_order(Hybrid(0.0), requests) == in_order(EarliestDeadline(), requests)
    assert in_order(Hybrid(1e9), requests) == in_order(ShortestRemaining(), requests)
    without = [made(each.id, each.num_prompt, each.arrival_time) for each in requests]
    assert in_order(Hybrid(0.0), without) == in_order(Fcfs(), without)


@pytest.mark.parametrize("order", ["shortest-prompt", "shortest-remaining", "earliest-deadline", "hybrid"])
def test_static_keys_do_not_move(order: str) -> None:
    policy = parse("ordering", order)
    each = made(0, 7, 1.0, deadline=4.0)
    assert policy.static and policy.key(each, 0.0) == policy.key(each, 1e6)


# -- ageing --------------------------------------------------------------------------------------------------
def test_over_the_limit_the_oldest_go_first_whatever_key_and_priority_say() -> None:
    requests = [made(0, 90, 0.0), made(1, 80, 1.0), made(2, 1, 2.0), made(3, 5, 7.0, priority=3), made(4, 2, 8.0)]
    order = Aged("shortest-prompt", 5.0)
    assert in_order(order, requests, now=4.0) == [3, 2, 4, 1, 0]
    assert in_order(order, requests, now=6.0) == [0, 1, 3, 2, 4]
    assert in_order(order, requests, now=12.0) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("inner", [ShortestPrompt(), Rotating(), Hybrid(0.05)])
@pytest.mark.parametrize("seed", range(5))
def test_an_aged_queue_equals_a_list_sorted_at_every_look(inner: object, seed: int) -> None:
    draw = random.Random(seed)
    order = Aged(inner, 3.0)
    queue, held = WaitingQueue(order, window=1000), []
    for id in range(300):
        now = id * 0.1
        if held and draw.random() < 0.45:
            gone = held.pop(draw.randrange(len(held)))
            queue.remove(gone)
        else:
            held.append(made(id, draw.randint(1, 9), now * draw.choice([1, 1, 0.9]), priority=draw.choice([0, 0, 1])))
            queue.push(held[-1], now)
        late = sorted((each for each in held if each.arrival_time <= now - 3.0), key=lambda each: each.order)
        rest = [each for each in held if each not in late]
        rest.sort(key=lambda each: (-each.priority, inner.key(each, now), each.order))
        count = draw.choice([0, 1, 3, 1000])
        assert queue.first(count, now) == [*late, *rest][:count]


def stream_of_short_requests(order: object) -> float:
    """How long one long request waits while short ones come faster than one at a time can be served."""
    sampling = SamplingParams(max_tokens=1)
    requests = [Request(0, None, sampling, 0.05, num_prompt=400)]
    requests += [Request(id + 1, None, sampling, 0.09 * id, num_prompt=50) for id in range(400)]
    engine = build_engine(
        Priced(step=0.05), requests, batching="continuous:1", chunking="budget:400", ordering=order, blocks=100
    )
    Driver(engine, requests, VirtualClock()).run()
    times = request_times(engine.trace)[0]
    return times.admitted - times.arrival


def test_shortest_first_starves_the_long_and_ageing_bounds_it() -> None:
    starved = stream_of_short_requests("shortest-prompt")
    aged = stream_of_short_requests("aged:shortest-prompt:5s")
    assert starved > 30.0  # until the stream has ended
    assert 5.0 <= aged < 5.0 + 0.2  # over the limit, then the end of one step


@pytest.mark.parametrize("seed", range(5))
def test_nobody_over_the_limit_is_overtaken_by_a_later_arrival(seed: int) -> None:
    draw = random.Random(seed)
    requests, now = [], 0.0
    for id in range(200):
        now += draw.expovariate(8.0)
        sampling = SamplingParams(max_tokens=draw.randint(1, 8))
        requests.append(
            Request(id, None, sampling, now, priority=draw.choice([0, 0, 2]), num_prompt=draw.randint(1, 200))
        )
    limit = 1.5
    engine = build_engine(
        Priced(), requests, blocks=2_000, batching="continuous:4", ordering=Aged("shortest-prompt", limit)
    )
    Driver(engine, requests, VirtualClock()).run()
    times = sorted(request_times(engine.trace).values(), key=lambda each: (each.arrival, each.id))
    for place, older in enumerate(times):
        for younger in times[place + 1 :]:
            if younger.admitted < older.admitted:
                assert younger.admitted < older.arrival + limit, f"{younger.id} overtook {older.id} too late"
    assert any(later.admitted < each.admitted for each, later in zip(times, times[1:], strict=False))


# -- all of them ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("batching", ["continuous:4", "dynamic:3:0", "static:3", "static:2:4"])
def test_order_changes_when_and_never_what(order: str, batching: str) -> None:
    draw = random.Random(1)
    requests = [
        request(id, draw.randint(1, 14), draw.randint(1, 9), arrival=id / 700, priority=id % 2) for id in range(20)
    ]
    for each in requests[::2]:
        each.deadline = each.arrival_time + draw.uniform(0.1, 2.0)
    engine = make_engine(blocks=14, batching=batching, ordering=order)
    Driver(engine, requests, VirtualClock()).run()
    assert_solo(requests)


@pytest.mark.parametrize("order", ORDERS)
def test_a_description_describes_the_same_order(order: str) -> None:
    described = describe(parse("ordering", order))
    assert describe(parse("ordering", described)) == described


def test_specs() -> None:
    aged = parse("ordering", "aged:hybrid:5s:0.01:0.5")
    assert (aged.max_wait, aged.order.alpha, aged.order.target) == (5.0, 0.01, 0.5)
    assert describe(aged) == "aged:hybrid:5:0.01:0.5"
    assert Aged(Hybrid(0.02), 3).order.alpha == 0.02
    assert Aged("hybrid", 3, target=0.5).order.target == 0.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Aged("shortest-prompt", -1), "after .seconds. -1"),
        (lambda: Aged("shortest-prompt", float("nan")), "after .seconds. nan"),
        (lambda: Aged("aged:fcfs:3"), "has a limit already"),
        (lambda: Aged("youngest"), "'youngest' is not known"),
        (lambda: Aged(Fcfs(), 3, 0.1), "arguments go with a name"),
        (lambda: Hybrid(-0.1), "per token. -0.1"),
        (lambda: Hybrid(float("inf")), "per token. inf"),
        (lambda: Hybrid(0.1, target=float("nan")), "target .seconds. nan"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message: str) -> None:
    with pytest.raises(BadPolicy, match=message):
        make()


def test_an_order_within_still_learns_and_forgets() -> None:
    class Learner(Fcfs):
        name = "learner-test"
        seen = 0

        def observe(self, step) -> None:
            self.seen += 1

        def reset(self) -> None:
            self.seen = 0

    order = Aged(Learner(), 3.0)
    for _ in range(2):
        engine = make_engine(ordering=order)
        Driver(engine, [request(0, 3, 4)], VirtualClock()).run()
        assert order.order.seen == 4
    assert not hasattr(Aged("fcfs"), "observe")
