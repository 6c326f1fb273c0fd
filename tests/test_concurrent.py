"""Several flights at once: same tokens, disjoint requests, nothing lost when a lane fails."""

from __future__ import annotations

import random
import time

import pytest
from oracles import HashModel, HashRunner, solo

import lab
from lab.clock import VirtualClock, WallClock
from lab.concurrent import LaneDriver, SharedTime, ThreadDevice
from lab.errors import BadPolicy, BlockError
from lab.lanes import Decode, Prefill, make_lanes
from lab.request import Request, SamplingParams
from lab.running import build_engine
from lab.workload import fixed_workload

LANES = ["one", "split:2", "split:3", "phases"]


def requests(seed: int, count: int = 24) -> list[Request]:
    """Random prompts with shared beginnings; some are sampled twice."""
    draw, now, made = random.Random(seed), 0.0, []
    for index in range(count):
        now += draw.expovariate(20.0)
        prompt = [draw.randint(0, 1)] * draw.randint(1, 20) + [draw.randint(0, 999) for _ in range(draw.randint(1, 20))]
        sampling = SamplingParams(max_tokens=draw.randint(1, 12), n=draw.choice([1, 1, 2]))
        made.append(Request(index, prompt, sampling, now))
    return made


def alone(request: Request) -> list[int]:
    """What the request's own first sample must be."""
    return solo(request.prompt, request.sampling, frozenset())


def drive(lanes: str, seed: int, threads: bool = False, **options):
    """Run to the end over HashRunner, recounting all books after every step."""
    work = requests(seed)
    engine = build_engine(HashModel(frozenset()), work, block_size=4, **options)
    engine.check_every_step = True
    clock = WallClock() if threads else VirtualClock()
    made = make_lanes(lanes)
    device = ThreadDevice(engine, clock, len(made)) if threads else SharedTime(engine, clock, made)
    trace = LaneDriver(engine, work, clock, made, device).run()
    engine.check()
    return engine, trace


CASES = {
    "plain": dict(batching="continuous:8", blocks=200),
    "whole": dict(batching="continuous:8", chunking="whole", blocks=200),
    "chunks": dict(batching="continuous:8", chunking="budget:5", blocks=200),
    "few blocks": dict(batching="continuous:8", blocks=22),
    "swap": dict(batching="continuous:8", blocks=22, preemption="swap"),
    "radix": dict(batching="continuous:8", blocks=40, prefix_cache="radix"),
    "hash": dict(batching="continuous:8", blocks=40, prefix_cache="hash"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("lanes", LANES)
def test_lanes_do_not_change_a_token(lanes, case):
    for seed in range(3):
        engine, _ = drive(lanes, seed, **CASES[case])
        for request in engine.requests.values():
            assert request.finish_reason == "length"
            if request.id < 1 << 32:
                assert request.output == alone(request), (lanes, case, seed, request.id)


def overlaps(trace) -> int:
    """Steps that began before the step recorded before them had ended."""
    steps = list(trace)
    return sum(after.start < before.end for before, after in zip(steps, steps[1:], strict=False))


@pytest.mark.parametrize("lanes", LANES[1:])
def test_steps_are_really_in_flight_together(lanes):
    _, trace = drive(lanes, 0, **CASES["plain"])
    assert overlaps(trace) > len(trace) / 4
    _, alone = drive("one", 0, **CASES["plain"])
    assert overlaps(alone) == 0


def test_flights_that_overlap_share_no_request():
    _, trace = drive("split:3", 1, **CASES["plain"])
    steps = list(trace)
    for place, step in enumerate(steps):
        mine = {row.request for row in step.rows}
        for other in steps[:place]:
            if other.end > step.start:
                assert mine.isdisjoint(row.request for row in other.rows)


def test_shares_are_equal_when_all_seats_are_taken():
    work = [Request(index, None, SamplingParams(max_tokens=50), 0.0, num_prompt=4) for index in range(12)]
    engine = build_engine(lab.Priced(), work, batching="continuous:9")
    clock = VirtualClock()
    driver = LaneDriver(engine, work, clock, (made := make_lanes("split:2")), SharedTime(engine, clock, made))
    driver.tick()
    sizes = sorted(len(flight.plan.rows) for flight in driver._flights.values()) + [
        len(step.rows) for step in engine.trace
    ]
    assert sorted(sizes)[-2:] == [4, 5]  # nine seats on two lanes


def test_phases_take_prompts_and_decodes_apart():
    _, trace = drive("phases", 2, **CASES["chunks"])
    for step in trace:
        first_tokens = [row.num_tokens > 1 or row.start < trace.requests[row.request].num_prompt for row in step.rows]
        assert all(first_tokens) or not any(first_tokens)


def test_who_takes_whom():
    fresh = Request(0, None, num_prompt=5)
    last_chunk = Request(1, None, num_prompt=5, num_computed=4)
    decoding = Request(2, None, num_prompt=5, num_computed=5, num_output=1)
    recomputed = Request(3, None, num_prompt=5, num_computed=0, num_output=3)
    assert [Prefill().takes(r) for r in (fresh, last_chunk, decoding, recomputed)] == [True, True, False, True]
    assert [Decode().takes(r) for r in (fresh, last_chunk, decoding, recomputed)] == [False, False, True, False]


@pytest.mark.parametrize("lanes", LANES[1:])
def test_threads_compute_the_same_tokens(lanes):
    engine, trace = drive(lanes, 3, threads=True, **CASES["radix"])
    assert all(request.output == alone(request) for request in engine.requests.values() if request.id < 1 << 32)
    assert {step.index for step in trace} == set(range(len(trace)))


class SlowCopies(HashRunner):
    """Takes its time before it copies blocks, as a busy device may."""

    def run(self, plan):
        if plan.copies:
            time.sleep(0.02)
        return super().run(plan)


@pytest.mark.parametrize("lanes", LANES[1:])
def test_blocks_on_their_way_to_the_host_are_not_written_by_another_lane(lanes):
    work = requests(4)
    for request in work:
        request.arrival_time = 0.0
    engine = build_engine(HashModel(frozenset()), work, block_size=4, **CASES["swap"])
    engine.runner = SlowCopies(4)
    clock, made = WallClock(), make_lanes(lanes)
    trace = LaneDriver(engine, work, clock, made, ThreadDevice(engine, clock, len(made))).run()
    assert sum(event.kind == "preempted" for event in trace.events()) > 3
    assert all(request.output == alone(request) for request in engine.requests.values() if request.id < 1 << 32)


class Failing(HashRunner):
    """Breaks in its tenth step."""

    count = 0

    def run(self, plan):
        self.count += 1
        if self.count == 10:
            raise BlockError("the tenth step is broken")
        return super().run(plan)


def test_what_a_thread_raises_reaches_the_driver():
    work = requests(0)
    engine = build_engine(HashModel(frozenset()), work, block_size=4, blocks=200)
    engine.runner = Failing(4)
    clock = WallClock()
    device = ThreadDevice(engine, clock, 2)
    with pytest.raises(BlockError, match="tenth step"):
        LaneDriver(engine, work, clock, make_lanes("split:2"), device).run()
    assert not any(thread.is_alive() for thread in device._threads)


WRONG = ["two", "split", "split:0", "split:x", "split:65", "phases:2", "phases:x", "phases:0", "one:1"]


@pytest.mark.parametrize("spec", WRONG)
def test_unknown_lanes_are_refused(spec):
    with pytest.raises(BadPolicy, match=r"lanes"):
        make_lanes(spec)


def test_a_rectangle_cannot_be_split():
    work = requests(0)
    engine = build_engine(HashModel(frozenset()), work, batching="static:4")
    with pytest.raises(BadPolicy, match="2 lanes with static batching"):
        LaneDriver(engine, work, VirtualClock(), make_lanes("split:2"), SharedTime(engine, VirtualClock(), ()))


def test_priced_steps_that_say_nothing_of_their_needs_take_turns():
    """Two lanes of equal halves on a device that each wants whole: as long as one after the other."""
    work = fixed_workload([16] * 8, [20] * 8)
    priced = lab.Priced(step=0.01, token=0.0)
    one = lab.run(work, priced, batching="continuous:8")
    two = lab.run(work, priced, batching="continuous:8", lanes="split:2")
    assert two.duration_s == pytest.approx(2 * one.duration_s, rel=0.06)
    assert two.trace.meta["axes"]["lanes"] == "split:2"


def test_a_real_model_in_lanes_needs_the_wall_clock():
    work = fixed_workload([(1, 2, 3)] * 2, [2, 2])
    with pytest.raises(BadPolicy, match="shows only when"):
        lab.run(work, lab.load_model("tiny"), lanes="split:2", clock="virtual")
