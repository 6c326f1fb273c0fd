from __future__ import annotations

import random
from math import inf, isclose

import pytest

from lab.batching.continuous import Continuous
from lab.batching.control import (
    AT_ONCE,
    Aimd,
    DelayFactor,
    Fixed,
    Greedy,
    HillClimb,
    MarginalCost,
    Pid,
    SlaBinarySearch,
    Threshold,
)
from lab.batching.control.fixed import greedy_latency
from lab.batching.dynamic import Dynamic
from lab.batching.protocol import QueueView
from lab.batching.served import Served
from lab.clock import Driver, VirtualClock
from lab.engine import Engine
from lab.errors import BadPolicy
from lab.metrics import request_times
from lab.plan import StepPlan
from lab.request import Request, SamplingParams
from lab.running import build_engine
from lab.simulation.priced import Priced

EVERY = [Fixed, Greedy, Threshold, Pid, Aimd, MarginalCost, DelayFactor, HillClimb, SlaBinarySearch]


class LinearBatch(Priced):
    """A batch of b requests takes per_batch + per_request·b seconds."""

    def price(self, plan: StepPlan) -> float:
        return self.step + self.token * len(plan.rows)


def poisson(rate: float, count: int, seed: int = 0, outputs: int = 1, prompt: int = 1) -> list[Request]:
    """`count` requests at `rate` requests/s."""
    draw, now, made = random.Random(seed), 0.0, []
    sampling = SamplingParams(max_tokens=outputs)
    for index in range(count):
        now += draw.expovariate(rate)
        made.append(Request(index, None, sampling, now, num_prompt=prompt))
    return made


def drive(requests: list[Request], batching: object, per_request: float, per_batch: float, **axes) -> Engine:
    model = LinearBatch(step=per_batch, token=per_request)
    engine = build_engine(model, requests, blocks=100_000, block_size=16, batching=batching, **axes)
    Driver(engine, requests, VirtualClock()).run()
    return engine


def queue(waiting: int = 1, oldest: float = 10.0, newest: float = 10.0, running: int = 0, now: float = 10.0):
    return QueueView(now, waiting, oldest, running, True, newest)


def served(size: int, seconds: float, waited: float = 0.0, end: float = 100.0, prompts: bool = True) -> Served:
    return Served(end - seconds, end, set(range(size)), [waited], prompts)


# -- Greedy: the closed form ---------------------------------------------------------------------------------
@pytest.mark.parametrize(("per_request", "per_batch", "load"), [(0.14, 1.9, 0.5), (0.14, 1.9, 0.9), (1.0, 1.0, 0.9)])
def test_greedy_through_the_engine_meets_inoues_closed_form_within_two_percent(per_request, per_batch, load) -> None:
    rate = load / per_request
    requests = poisson(rate, 300_000)
    drive(requests, Dynamic(10**6, "greedy"), per_request, per_batch, attention="packed", delivery="token")
    latency = sum(request.last_token_time - request.arrival_time for request in requests) / len(requests)
    assert latency == pytest.approx(greedy_latency(rate, per_request, per_batch), rel=0.02)


def test_greedy_makes_larger_batches_the_busier_it_is() -> None:
    sizes = []
    for load in (0.1, 0.5, 0.9):
        engine = drive(poisson(load / 0.14, 5_000), Dynamic(10**6, 0), 0.14, 1.9)
        sizes.append(5_000 / len(engine.trace))
    assert sizes[0] < 3 and sizes[1] > 10 and sizes[2] > 60


def test_inoues_bound_as_worked_out_by_hand() -> None:
    assert greedy_latency(0.1 / 0.14, 0.14, 1.9) == pytest.approx(3.32, abs=0.005)
    assert greedy_latency(0.5, 1.0, 1.0) == pytest.approx(4.67, abs=0.005)
    with pytest.raises(BadPolicy, match="stable below 1"):
        greedy_latency(1.0, 1.0, 1.0)


# -- each rule by its formula --------------------------------------------------------------------------------
def test_fixed_waits_from_the_oldest_arrival() -> None:
    assert Fixed(0.25).limits(queue(oldest=9.0), 10.0) == (None, 9.25)
    assert Greedy().limits(queue(), 10.0) == (None, AT_ONCE) == (None, -inf)


def test_threshold_has_three_delays_by_the_busy_share() -> None:
    control = Threshold(delay=0.005, peak=0.010, low=0.5, high=0.8, window=4)
    delays = []
    for gap in (9.0, 0.5, 0.1):  # seconds of idleness after each batch of one second
        control.reset()
        for index in range(6):
            start = index * (1 + gap)
            control.observe(Served(start, start + 1))
        delays.append(control.limits(queue(oldest=10.0), 10.0).wait_until)
    assert delays == [AT_ONCE, 10.005, 10.010]
    control.reset()
    assert control.limits(queue(), 10.0).wait_until == AT_ONCE


def test_pid_by_hand_and_with_anti_windup() -> None:
    control = Pid(target=0.010, kp=0.5, ki=0.25, kd=0.1, max_delay=0.02)
    control.observe(served(1, 1.0, waited=0.0))
    assert control.delay == pytest.approx(0.5 * 0.010 + 0.25 * 0.010)
    control.observe(served(1, 1.0, waited=0.006))
    assert control.delay == pytest.approx(0.5 * 0.004 + 0.25 * (0.010 + 0.004) + 0.1 * (0.004 - 0.010))
    for _ in range(100):
        control.observe(served(1, 1.0, waited=5.0))
    assert control.delay == 0.0
    for _ in range(10):  # had the sum gone on, it would now be at -500 s
        control.observe(served(1, 1.0, waited=0.0))
    assert control.delay > 0.0
    before = control.delay
    control.observe(Served(0.0, 1.0))  # admitted nobody: no measurement
    assert control.delay == before


def test_pid_settles_at_its_target_on_an_idle_engine_and_at_zero_on_a_busy_one() -> None:
    calm = Dynamic(8, "pid", 0.010)
    engine = drive(
        [Request(i, None, SamplingParams(max_tokens=1), float(i), num_prompt=1) for i in range(60)], calm, 0.01, 0.1
    )
    waits = [times.admitted - times.arrival for times in request_times(engine.trace).values()]
    assert waits[0] == 0.0 and waits[-1] == pytest.approx(0.010, abs=1e-5)
    busy = Dynamic(8, "pid", 0.010)
    drive(poisson(60.0, 600), busy, 0.01, 0.1)
    assert busy.control.delay == 0.0


def test_aimd_adds_until_the_objective_is_missed_and_then_takes_a_tenth() -> None:
    control = Aimd(slo=1.0, step=2.0, start=10.0)
    control.observe(served(10, 0.9))
    assert control.size == 12.0
    control.observe(served(11, 0.9))  # not full: nothing learned
    assert control.size == 12.0
    control.observe(served(12, 1.1))
    assert control.size == pytest.approx(10.8) and control.limits(queue(), 0.0) == (10, AT_ONCE)
    for _ in range(100):
        control.observe(served(1, 5.0))
    assert control.limits(queue(), 0.0).max_batch == 1  # rounding every back-off up would end at 9


def test_aimd_through_the_engine_hovers_below_the_size_that_meets_its_objective() -> None:
    policy = Dynamic(64, "aimd", 0.4)  # 0.1 + 0.01·b = 0.4 at b = 30
    engine = drive(poisson(1000.0, 6_000), policy, 0.01, 0.1, delivery="token")
    sizes = [len(step.rows) for step in engine.trace][40:-2]
    assert max(sizes) == 31 and min(sizes) >= 26


def test_marginal_cost_waits_while_the_rule_says_so() -> None:
    control = MarginalCost(max_latency=100.0)
    control.per_request, control.per_batch, control.mean_wait = 0.002, 0.5, 0.1
    for waiting in (1, 2, 5, 20):
        view = queue(waiting, oldest=9.9, newest=10.0)
        until = control.limits(view, 10.0).wait_until
        for now in (10.0, 10.001, 10.01, 10.02, 10.05, 10.2):
            rule = waiting * ((now - 10.0) + 0.001 + 0.002) <= 0.95 * 0.1
            assert rule == (now <= until) or isclose(now, until)


def test_marginal_cost_fits_the_line_and_the_mean_wait_and_renews_them_now_and_then() -> None:
    control = MarginalCost(refresh=5.0)
    for index, size in enumerate([2, 4, 8, 16, 3]):
        control.observe(served(size, 0.5 + 0.02 * size, waited=0.01 * size, end=100.0 + index))
    assert control.per_batch == pytest.approx(0.54)  # of the first batch alone: it is not yet time for the next fit
    control.observe(served(1, 0.52, waited=0.01, end=105.0))
    assert (control.per_request, control.per_batch) == (pytest.approx(0.02), pytest.approx(0.5))
    assert control.mean_wait == pytest.approx(0.01 * (2 + 4 + 8 + 16 + 3 + 1) / 6)


def test_marginal_cost_starts_in_time_for_its_latency_limit_and_is_greedy_at_first() -> None:
    control = MarginalCost(max_latency=1.0)
    assert control.limits(queue(), 10.0).wait_until < 10.0
    control.per_request, control.per_batch, control.mean_wait = 0.01, 0.3, 1000.0
    assert control.limits(queue(2, oldest=9.9), 10.0).wait_until == pytest.approx(9.9 + 1.0 - 0.32)


def test_delay_factor_waits_in_proportion_to_the_last_prompt_step_while_others_run() -> None:
    control = DelayFactor(0.5)
    control.observe(served(4, 0.8, prompts=True))
    control.observe(served(4, 0.1, prompts=False))
    assert control.limits(queue(oldest=9.0, running=3), 10.0) == (None, pytest.approx(9.4))
    assert control.limits(queue(oldest=9.0, running=0), 10.0) == (None, AT_ONCE)


def test_delay_factor_gathers_prompts_into_fewer_steps_and_shortens_the_pauses_between_tokens() -> None:
    gaps, prompt_steps = [], []
    for control in (None, DelayFactor(3.0)):
        requests = poisson(2.0, 60, outputs=40, prompt=100)
        engine = build_engine(Priced(), requests, blocks=2_000, batching=Continuous(16, control), chunking="whole")
        Driver(engine, requests, VirtualClock()).run()
        prompt_steps.append(sum(any(row.start == 0 for row in step.rows) for step in engine.trace))
        gaps.append(sum(sum(gap > 0.1 for gap in times.gaps) for times in request_times(engine.trace).values()))
    assert prompt_steps[1] < 0.8 * prompt_steps[0] and gaps[1] < 0.8 * gaps[0]


def test_hill_climb_finds_the_valley() -> None:
    control = HillClimb(average_over=4, start=4.0, most=64.0)
    visited = []
    for _ in range(4 * 120):
        size = control.limits(queue(), 0.0).max_batch
        visited.append(size)
        control.observe(served(size, 1.0 + 0.01 * (size - 20) ** 2))
    assert 17 <= sum(visited[-80:]) / 80 <= 23 and min(visited) >= 1 and max(visited) <= 64


def test_hill_climb_moves_as_its_rule_says() -> None:
    control = HillClimb(average_over=1, start=16.0)
    moves = []
    for latency in (1.0, 0.9, 0.8, 0.85, 0.82):
        control.observe(served(8, latency))
        moves.append((control.direction, control.step))
    # first value; better after none; better again (×2, at the ceiling); worse: turn, same step; better: half
    assert moves == [(1, 1 / 8), (1, 1 / 8), (1, 1 / 8), (-1, 1 / 8), (-1, 1 / 16)]


def test_hill_climb_alternates_between_neighbours_of_a_fractional_limit() -> None:
    control = HillClimb(average_over=1000, start=2.25)
    sizes = []
    for _ in range(400):
        sizes.append(control.limits(queue(), 0.0).max_batch)
        control.observe(served(sizes[-1], 1.0))
    assert set(sizes) == {2, 3} and sum(sizes) / 400 == pytest.approx(2.25)


def test_sla_search_by_hand() -> None:
    control = SlaBinarySearch(slo=0.2, tolerance=0.015, least=1, most=64, gap=4, slack=2, window=1)
    seen = []
    for _ in range(6):
        seen.append((control.size, control.low, control.high))
        control.observe(served(control.size, 0.01 * control.size))
    # 32 is too slow; 16 too fast; 25 too slow; 19 is within: from there the interval closes round it
    assert seen[:4] == [(32, 1.0, 64.0), (16, 1.0, 32.0), (25, 16.0, 34.0), (19, 14.0, 25.0)]
    assert seen[4] == seen[5] == (19, 17.0, 21.0)


def test_sla_search_through_the_engine_keeps_the_step_time() -> None:
    policy = Continuous(64, "sla-search", 0.3)  # 0.1 + 0.01·b = 0.3 at b = 20
    engine = drive(poisson(100.0, 400, outputs=50), policy, 0.01, 0.1)
    late = [step for step in engine.trace][-400:-100]
    assert 17 <= sum(len(step.rows) for step in late) / len(late) <= 22


# -- all of them ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("controller", EVERY)
@pytest.mark.parametrize("traffic", ["calm", "bursty"])
def test_every_controller_admits_everybody_in_the_end(controller: type, traffic: str) -> None:
    requests = poisson(3.0, 200, outputs=3)
    if traffic == "bursty":
        for request in requests:
            request.arrival_time = 5.0 * int(request.arrival_time / 5.0)
    batchings = [Continuous(8, controller())]
    if controller is not DelayFactor:
        batchings.append(Dynamic(8, controller()))
    for batching in batchings:
        fresh = [Request(r.id, None, r.sampling, r.arrival_time, num_prompt=1) for r in requests]
        engine = drive(fresh, batching, 0.01, 0.1)
        assert all(request.finish_reason == "length" for request in fresh)
        assert max(len(step.rows) for step in engine.trace) <= 8


@pytest.mark.parametrize("controller", EVERY)
def test_a_new_engine_makes_a_controller_forget(controller: type) -> None:
    policy = Continuous(8, controller())
    runs = []
    for _ in range(2):
        engine = drive(poisson(5.0, 100, outputs=3), policy, 0.01, 0.1)
        runs.append([(step.start, step.end, len(step.rows)) for step in engine.trace])
    assert runs[0] == runs[1]


def test_a_controller_learns_of_whole_batches_in_dynamic_and_of_steps_in_continuous_batching() -> None:
    class Ear(Greedy):
        name = "ear"

        def __init__(self) -> None:
            self.heard: list[Served] = []

        def observe(self, served: Served) -> None:
            self.heard.append(served)

    arrivals = [0.0, 0.05, 0.05]
    for policy, sizes in ((Dynamic(2, Ear()), [1, 2]), (Continuous(2, Ear()), [1, 2, 2, 2, 1, 1])):
        requests = [Request(i, None, SamplingParams(max_tokens=3), t, num_prompt=1) for i, t in enumerate(arrivals)]
        drive(requests, policy, 0.0, 0.1)
        assert [served.size for served in policy.control.heard] == sizes
        assert policy.control.heard[0].waited == 0.0
        longest = 0.25 if isinstance(policy, Dynamic) else 0.05
        assert policy.control.heard[1].waited == pytest.approx(longest)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Threshold(delay=0.02, peak=0.01), "must rise"),
        (lambda: Pid(target=1.0), "target wait of 1.0"),
        (lambda: Aimd(slo=0.0), "slo 0.0"),
        (lambda: Aimd(backoff=1.0), "backoff 1.0"),
        (lambda: MarginalCost(max_latency=0.0), "max_latency 0.0"),
        (lambda: DelayFactor(-1.0), "factor of -1.0"),
        (lambda: HillClimb(start=100.0), "from 100.0"),
        (lambda: SlaBinarySearch(slo=-1.0), "SLA search for -1.0"),
        (lambda: SlaBinarySearch(least=9, most=8), "between sizes 9 and 8"),
    ],
)
def test_settings_without_sense_are_refused(make, message: str) -> None:
    with pytest.raises(BadPolicy, match=message):
        make()
