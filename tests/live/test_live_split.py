"""Where a request's time went: worked out by hand, and against the report of real runs."""

from __future__ import annotations

import pytest
from oracles import HashModel
from test_live_session import work

import lab
from lab.errors import BadRequest
from lab.live.split import PARTS, company, time_split
from lab.trace import Event, RequestInfo, RowTrace, RunTrace, StepTrace


def step(index, start, end, rows, events=()):
    """A step with rows (request, first position, tokens, samples)."""
    found = [RowTrace(request, first, count, 0, sampled) for request, first, count, sampled in rows]
    return StepTrace(index, start, end, "packed", found, [Event(*event) for event in events], 0, 0, 0, 0, 0)


def trace_of(steps, late=(), **prompts):
    trace = RunTrace(late_events=[Event(*event) for event in late])
    for name, (arrival, prompt) in prompts.items():
        trace.requests[int(name[1:])] = RequestInfo(int(name[1:]), arrival, prompt, 8)
    for entry in steps:
        trace.append(entry)
    return trace


def parts(**given):
    return dict.fromkeys(PARTS, 0.0) | given


def test_queue_prompt_and_tokens():
    trace = trace_of(
        [
            step(0, 1.0, 3.0, [(0, 0, 10, True)], [(0.5, "arrived", 0), (1.0, "admitted", 0)]),
            step(1, 3.0, 3.5, [(0, 10, 1, True)]),
            step(2, 3.75, 4.0, [(0, 11, 1, True)], [(4.0, "finished", 0, 3)]),
        ],
        r0=(0.5, 10),
    )
    # 0.5 s in the queue, a prompt step of 2 s, tokens of 0.5 and 0.25 s, and 0.25 s between two steps
    assert time_split(trace, 0) == parts(queueing=0.5, prefill=2.0, decode=0.75, stall=0.25)


def test_a_prompt_in_chunks_and_a_neighbour_that_is_kept_waiting():
    trace = trace_of(
        [
            step(0, 0.0, 1.0, [(0, 0, 4, True)], [(0.0, "admitted", 0)]),
            step(1, 1.0, 3.0, [(1, 0, 6, False)], [(1.0, "admitted", 1)]),  # request 0 is not in it
            step(2, 3.0, 6.0, [(0, 4, 1, True), (1, 6, 6, True)]),
            step(3, 6.0, 6.5, [(0, 5, 1, True), (1, 12, 1, True)], [(6.5, "finished", 0, 3), (6.5, "finished", 1, 2)]),
        ],
        r0=(0.0, 4),
        r1=(0.25, 12),
    )
    assert time_split(trace, 0) == parts(prefill=1.0, stall=2.0, decode=3.5)
    assert time_split(trace, 1) == parts(queueing=0.75, prefill=5.0, decode=0.5)
    # one decode beside the other's prompt took 3 s, one beside its decode 0.5 s
    assert company(trace, 0) == {"plain": 1, "plain_s": 0.5, "beside": 1, "beside_s": 3.0}


def test_preemption_is_the_second_wait_and_what_is_computed_again():
    trace = trace_of(
        [
            step(0, 0.0, 1.0, [(0, 0, 4, True)], [(0.0, "admitted", 0)]),
            step(1, 1.0, 1.5, [(0, 4, 1, True)]),
            step(2, 1.5, 4.0, [(1, 0, 9, True)], [(1.5, "preempted", 0, 5), (1.5, "admitted", 1)]),
            step(3, 4.0, 5.0, [(0, 0, 6, True)], [(4.0, "admitted", 0)]),  # 4 prompt tokens, 2 outputs: again
            step(4, 5.0, 5.5, [(0, 6, 1, True)], [(5.5, "finished", 0, 4)]),
        ],
        r0=(0.0, 4),
        r1=(1.0, 9),
    )
    assert time_split(trace, 0) == parts(prefill=1.0, decode=1.0, preemption=2.5 + 1.0)


def test_a_batch_that_delivers_at_its_end():
    trace = trace_of(
        [
            step(0, 2.0, 3.0, [(0, 0, 4, True), (1, 0, 4, True)], [(2.0, "admitted", 0), (2.0, "admitted", 1)]),
            step(1, 3.0, 4.0, [(0, 4, 1, True), (1, 4, 1, True)], [(4.0, "finished", 0, 2)]),
            step(2, 4.0, 7.0, [(0, 5, 0, False), (1, 5, 1, True)], [(7.0, "finished", 1, 3)]),
        ],
        [(7.0, "delivered", 0, 2), (7.0, "delivered", 1, 3)],
        r0=(0.0, 4),
        r1=(1.5, 4),
    )
    assert time_split(trace, 0) == parts(queueing=2.0, prefill=1.0, decode=1.0, delivery=3.0)
    assert time_split(trace, 1) == parts(queueing=0.5, prefill=1.0, decode=4.0)


def test_one_that_has_not_ended_counts_to_the_last_step():
    trace = trace_of(
        [step(0, 1.0, 2.0, [(0, 0, 4, True)], [(1.0, "admitted", 0)]), step(1, 2.0, 5.0, [(0, 4, 1, True)])],
        r0=(0.0, 4),
        r1=(3.0, 4),
    )
    assert time_split(trace, 0) == parts(queueing=1.0, prefill=1.0, decode=3.0)
    assert time_split(trace, 1) == parts(queueing=2.0)
    with pytest.raises(BadRequest, match="request 7"):
        time_split(trace, 7)


RUNS = {
    "batch delivery": dict(batching="static:4"),
    "dynamic": dict(batching="dynamic:4:50ms"),
    "chunks": dict(batching="continuous:6", chunking="budget:8"),
    "recompute": dict(batching="continuous:8", blocks=8),
    "swap": dict(batching="continuous:8", blocks=8, preemption="swap"),
    "cache": dict(batching="continuous:4", prefix_cache="radix"),
}


@pytest.mark.parametrize("name", RUNS)
def test_parts_sum_to_the_end_to_end_time(name):
    report = lab.run(work(gap=0.02), HashModel(), **RUNS[name])
    splits = {request: time_split(report.trace, request) for request in report.times}
    for request, times in report.times.items():
        assert sum(splits[request].values()) == pytest.approx(times.e2e, abs=1e-9)
        assert all(value >= 0 for value in splits[request].values())
        first = times.admitted - times.arrival
        assert splits[request]["queueing"] == pytest.approx(first, abs=1e-9)
    total = {part: sum(split[part] for split in splits.values()) for part in PARTS}
    assert (total["preemption"] > 0) == (report.preemptions > 0) == (name in ("recompute", "swap"))
    assert (total["delivery"] > 0) == (name in ("batch delivery", "dynamic"))
    assert total["prefill"] > 0 and total["decode"] > 0
