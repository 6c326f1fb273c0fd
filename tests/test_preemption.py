from __future__ import annotations

from harness import request

from lab.preemption import Recompute


def test_the_latest_arrival_yields() -> None:
    candidates = [request(4, 3, arrival=2.0), request(1, 3, arrival=5.0), request(9, 3, arrival=1.0)]
    assert Recompute().victim(candidates) is candidates[1]


def test_of_two_that_came_together_the_larger_id_yields() -> None:
    candidates = [request(4, 3), request(7, 3), request(5, 3)]
    assert Recompute().victim(candidates) is candidates[1]
