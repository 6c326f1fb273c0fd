from __future__ import annotations

import random

import pytest

from lab.ordering.arrival import Fcfs
from lab.ordering.queue import WaitingQueue
from lab.request import Request


class ShortestPrompt:
    name = "shortest-test"
    static = True

    def key(self, request: Request, now: float) -> float:
        return request.num_prompt


class Rotating:
    """A key that moves with time, so that order must be taken anew at each look."""

    name = "rotating-test"
    static = False

    def key(self, request: Request, now: float) -> float:
        return (request.num_prompt + now) % 5


class Oracle:
    """A plain list, sorted whenever somebody looks."""

    def __init__(self, ordering, window: int):
        self.ordering, self.window, self.held = ordering, window, []

    def first(self, count: int, now: float) -> list[int]:
        seen = sorted(self.held, key=lambda r: (r.arrival_time, r.id))
        if not self.ordering.static:
            seen = seen[: self.window]
        seen.sort(key=lambda r: (-r.priority, self.ordering.key(r, now), r.arrival_time, r.id))
        return [request.id for request in seen[:count]]


@pytest.mark.parametrize("window", [1, 3, 128])
@pytest.mark.parametrize("ordering", [Fcfs(), ShortestPrompt(), Rotating()], ids=lambda o: o.name)
@pytest.mark.parametrize("seed", range(4))
def test_queue_against_a_sorted_list(ordering, window: int, seed: int) -> None:
    draw = random.Random(seed)
    queue, oracle = WaitingQueue(ordering, window), Oracle(ordering, window)
    for id in range(400):
        now = id * 0.5
        if oracle.held and draw.random() < 0.45:
            gone = draw.choice(oracle.held)
            oracle.held.remove(gone)
            queue.remove(gone)
        else:
            made = Request(
                id,
                None,
                arrival_time=draw.choice([now, 0.0, now / 2]),
                priority=draw.choice([0, 0, 0, 1, -2]),
                num_prompt=draw.randint(1, 9),
            )
            oracle.held.append(made)
            queue.push(made, now)
        assert len(queue) == len(oracle.held) and bool(queue) == bool(oracle.held)
        assert queue.oldest_arrival == min((r.arrival_time for r in oracle.held), default=None)
        count = draw.choice([0, 1, 2, 5, 1000])
        assert [r.id for r in queue.first(count, now)] == oracle.first(count, now)
        assert [r.id for r in queue] == [r.id for r in sorted(oracle.held, key=lambda r: r.order)]
        if draw.random() < 0.05:
            changed = draw.choice([Fcfs(), ShortestPrompt(), Rotating()])
            oracle.ordering = changed
            queue.reorder(changed, now)


def test_looking_takes_nothing_out() -> None:
    queue = WaitingQueue(Fcfs())
    for id in range(3):
        queue.push(Request(id, [1]), 0.0)
    assert [r.id for r in queue.first(2, 0.0)] == [r.id for r in queue.first(2, 0.0)] == [0, 1]


def test_ties_are_first_come_first_served_whatever_the_push_order() -> None:
    queue = WaitingQueue(ShortestPrompt())
    for id, arrival in ((5, 1.0), (3, 1.0), (9, 0.5)):
        queue.push(Request(id, [1, 2], arrival_time=arrival), 1.0)
    assert [r.id for r in queue.first(3, 1.0)] == [9, 3, 5]


def test_priority_goes_before_any_key() -> None:
    queue = WaitingQueue(ShortestPrompt())
    queue.push(Request(0, [1]), 0.0)
    queue.push(Request(1, [1] * 9, priority=1, arrival_time=3.0), 3.0)
    queue.push(Request(2, [1], priority=-1), 3.0)
    assert [r.id for r in queue.first(3, 3.0)] == [1, 0, 2]


def test_fcfs_key_is_the_arrival_time() -> None:
    assert Fcfs().key(Request(0, [1], arrival_time=2.5), 99.0) == 2.5
    assert Fcfs.static is True
