from __future__ import annotations

from harness import Stepper, assert_solo, make_engine, request

from lab.batching.continuous import Continuous
from lab.batching.protocol import QueueView


def test_every_step_fills_up_to_max_running() -> None:
    for running in range(6):
        assert Continuous(4).admit(QueueView(0.0, 9, 0.0, running, True)).slots == 4 - running


def test_a_finished_request_is_replaced_in_the_next_step() -> None:
    requests = [request(0, 3, 1), request(1, 3, 4), request(2, 3, 2), request(3, 3, 1)]
    steps = Stepper(make_engine(batching="continuous:2"), requests).run()
    assert [[row.request for row in step.rows] for step in steps] == [[0, 1], [1, 2], [1, 2], [1, 3]]
    assert sum(step.padded for step in steps) == sum(step.carried for step in steps) == 0
    assert_solo(requests)


def test_a_step_mixes_prompts_and_decodes() -> None:
    requests = [request(0, 3, 4), request(1, 3, 4), request(2, 9, 2)]
    stepper = Stepper(make_engine(batching="continuous:3", chunking="budget:6"), requests[:2])
    stepper.step()
    stepper.engine.submit(requests[2])
    step = stepper.step()
    assert [(row.request, row.num_tokens) for row in step.rows] == [(0, 1), (1, 1), (2, 4)]


def test_lower_limits_drain() -> None:
    requests = [request(id, 3, 6) for id in range(5)]
    stepper = Stepper(make_engine(batching="continuous:4"), requests)
    stepper.step()
    stepper.engine.reconfigure(batching=Continuous(1))
    assert len(stepper.step().rows) == 4  # nobody is thrown out
    steps = stepper.run()
    assert len(steps[-1].rows) == 1 and len(steps[-6].rows) == 1
    assert_solo(requests)
