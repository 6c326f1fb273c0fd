from __future__ import annotations

import random

import pytest
from harness import Stepper, assert_solo, make_engine, request

from lab.axes import describe, parse
from lab.batching.control import Pid
from lab.batching.dynamic import Dynamic
from lab.batching.protocol import QueueView
from lab.clock import Driver, VirtualClock
from lab.engine import Engine
from lab.errors import BadPolicy
from lab.metrics import request_times
from lab.request import Request, SamplingParams
from lab.running import build_axes, build_engine
from lab.simulation.priced import Priced

DELAY = 0.002


def drive(arrivals: list[float], batching: object, outputs: int = 1, step: float = 0.02, prompt: int = 4) -> Engine:
    """Requests of one prompt length at `arrivals`, on the virtual clock, to the end."""
    requests = [
        Request(i, None, SamplingParams(max_tokens=outputs), time, num_prompt=prompt) for i, time in enumerate(arrivals)
    ]
    engine = build_engine(Priced(step=step), requests, blocks=10_000, batching=batching)
    Driver(engine, requests, VirtualClock()).run()
    return engine


def starts(engine: Engine) -> list[tuple[float, list[int]]]:
    """(start, request ids) of every batch."""
    admitted: dict[float, list[int]] = {}
    for event in engine.trace.events():
        if event.kind == "admitted":
            admitted.setdefault(event.time, []).append(event.request)
    return sorted(admitted.items())


@pytest.mark.parametrize(
    ("waiting", "running", "now", "slots", "wake_at"),
    [
        (3, 0, 1.001, 0, 1.002),  # neither full nor old enough
        (4, 0, 1.0, 4, None),  # full
        (9, 0, 1.0, 4, None),
        (3, 0, 1.002, 4, None),  # the oldest has waited the delay
        (1, 0, 7.0, 4, None),
        (9, 1, 7.0, 0, None),  # a batch runs: whatever the timer says
        (0, 0, 7.0, 0, None),
    ],
)
def test_the_start_rule(waiting: int, running: int, now: float, slots: int, wake_at: float | None) -> None:
    view = QueueView(now, waiting, 1.0 if waiting else None, running, True)
    assert Dynamic(4, DELAY).admit(view)[:2] == (slots, wake_at)


def test_a_lone_request_starts_when_the_timer_fires_not_before_and_not_after() -> None:
    assert starts(drive([0.5], Dynamic(8, DELAY))) == [(0.5 + DELAY, [0])]


def test_a_full_batch_starts_when_its_last_request_comes() -> None:
    assert starts(drive([0.0, 0.0005, 0.001], Dynamic(3, DELAY))) == [(0.001, [0, 1, 2])]


def test_the_timer_counts_from_the_oldest() -> None:
    assert starts(drive([0.0, 0.0019, 0.0021], Dynamic(8, DELAY)))[0] == (DELAY, [0, 1])


def test_without_delay_an_idle_engine_starts_at_once_and_a_busy_one_takes_all_that_wait_afterwards() -> None:
    engine = drive([0.0, 0.001, 0.002, 0.003], Dynamic(8, 0))
    assert [ids for _, ids in starts(engine)] == [[0], [1, 2, 3]]
    assert starts(engine)[0][0] == 0.0 and starts(engine)[1][0] == engine.trace[0].end


def test_nobody_joins_a_running_batch_and_users_get_tokens_when_it_ends() -> None:
    requests = [request(0, 3, 2), request(1, 5, 6), request(2, 4, 3)]
    engine = make_engine(batching="dynamic:2:1s")
    steps = Stepper(engine, requests[:2])
    assert [row.request for row in steps.step().rows] == [0, 1]
    engine.submit(requests[2])
    rest = []
    while len(rest) < 8:
        step = steps.step()
        if step is None:
            steps.now = engine.wake_at
        else:
            rest.append(sorted(row.request for row in step.rows))
    assert rest == [[0, 1]] * 5 + [[2]] * 3
    assert_solo(requests)


@pytest.mark.parametrize("seed", range(20))
def test_the_guarantee_queueing_exceeds_the_delay_only_if_a_batch_runs_when_the_timer_fires(seed: int) -> None:
    draw = random.Random(seed)
    now, arrivals = 0.0, []
    for _ in range(300):
        now += draw.expovariate(draw.choice([20.0, 200.0, 2000.0]))
        arrivals.append(now)
    engine = drive(arrivals, Dynamic(draw.choice([1, 2, 8, 64]), DELAY), outputs=draw.choice([1, 3]), step=0.004)
    busy = [(step.start, step.end) for step in engine.trace]
    late = 0
    for times in request_times(engine.trace).values():
        if times.admitted - times.arrival > DELAY + 1e-12:
            late += 1
            fires = times.arrival + DELAY
            assert any(start <= fires <= end for start, end in busy), f"request {times.id} waited for nothing"
    assert 0 < late < 300  # both kinds occur


def test_on_an_engine_that_is_idle_whenever_a_timer_fires_the_delay_bounds_queueing() -> None:
    arrivals = [i * 0.1 + j * 0.0009 for i in range(50) for j in range(3)]
    engine = drive(arrivals, Dynamic(8, DELAY))
    waits = [times.admitted - times.arrival for times in request_times(engine.trace).values()]
    assert max(waits) == pytest.approx(DELAY)


def test_counter_example_two_milliseconds_become_a_second_behind_a_running_batch() -> None:
    engine = drive([0.0, 0.1], Dynamic(8, DELAY), step=1.0)
    second = request_times(engine.trace)[1]
    assert second.admitted - second.arrival > 0.9 > 400 * DELAY


def test_counter_example_behind_more_than_max_batch_others_it_is_several_batches() -> None:
    engine = drive([0.0] * 10, Dynamic(2, DELAY), step=1.0)
    last = request_times(engine.trace)[9]
    assert last.admitted > 4.0


def test_a_named_controller_gets_the_further_arguments() -> None:
    policy = Dynamic(8, "pid", target=0.01)
    assert isinstance(policy.control, Pid) and policy.control.target == 0.01
    assert parse("batching", "dynamic:8:pid:10ms").control.target == 0.01
    assert parse("batching", "dynamic:8:2ms").control.delay == 0.002
    assert parse("batching", "dynamic:8").control.delay == 0.002
    assert Dynamic(8, Pid(0.01)).control.target == 0.01


@pytest.mark.parametrize("spec", ["dynamic:8:2ms", "dynamic:4:pid:10ms", "dynamic:2:aimd:slo=0.2", "dynamic:1:greedy"])
def test_a_description_describes_the_same_policy(spec: str) -> None:
    described = describe(parse("batching", spec))
    assert describe(parse("batching", described)) == described


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dynamic(0), "max_batch 0"),
        (lambda: Dynamic(2.5), "max_batch 2.5"),
        (lambda: Dynamic("8"), "max_batch '8'"),
        (lambda: Dynamic(8, -0.001), "of -0.001; it must be at least 0"),
        (lambda: Dynamic(8, float("inf")), "of inf; it must be a finite number"),
        (lambda: Dynamic(8, float("nan")), "of nan; it must be a finite number"),
        (lambda: Dynamic(8, "psychic"), "'psychic' is not known; there are aimd, delay-factor, fixed"),
        (lambda: Dynamic(8, "pid", 1, 2, 3, 4, 5, 6), "it takes"),
        (lambda: Dynamic(8, Pid(), 0.01), "arguments go with a name"),
        (lambda: Dynamic(8, "delay-factor"), "starts only when nobody runs, so it would never wait"),
        (lambda: build_axes(batching="dynamic:8:2ms", chunking="slack"), "choose delivery 'token'"),
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_built(make, message: str) -> None:
    with pytest.raises(BadPolicy, match=message):
        make()


def test_slack_chunking_is_welcome_where_tokens_are_delivered_one_by_one() -> None:
    assert build_axes(batching="dynamic:8:2ms", chunking="slack", delivery="token").chunking.name == "slack"
