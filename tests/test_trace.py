from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import make_engine, request, run_all

from lab.clock import Driver, VirtualClock
from lab.errors import BadWorkload
from lab.metrics import Report
from lab.trace import Event, RequestInfo, RowTrace, RunTrace, StepTrace


def make_step(index: int = 0, **changes) -> StepTrace:
    values = dict(
        index=index,
        start=index * 1.0,
        end=index + 0.5,
        attention="padded",
        rows=[RowTrace(3, 0, 5, 2, True, 0, 0.25), RowTrace(4, 7, 0, 7, False), RowTrace(2**40, 1, 2, 0, True, None)],
        events=[Event(0.1, "admitted", 3, 4, "note")],
        waiting=1,
        running=2,
        free=3,
        used=4,
        cached=5,
        recomputed=6,
        slots=7,
        resident=8,
    )
    return StepTrace(**(values | changes))


def test_counters_of_a_step() -> None:
    step = make_step()
    assert (step.computed, step.padded, step.sampled, step.carried) == (7, 9, 2, 1)


def test_columns_give_back_equal_steps() -> None:
    trace, steps = RunTrace(), [make_step(0), make_step(1, rows=[], events=[]), make_step(2, attention="packed")]
    for step in steps:
        trace.append(step)
    assert len(trace) == 3 and list(trace) == steps
    assert [trace[-1], trace[0]] == [steps[2], steps[0]]
    assert trace[0].rows[0].token == 0 and trace[0].rows[2].token is None  # token 0 is a token
    assert trace[0].rows[1].margin is None
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"step {index} of a run of 3 steps"):
            trace[index]


def test_a_stored_step_does_not_change_with_its_source() -> None:
    trace, step = RunTrace(), make_step()
    trace.append(step)
    step.events.clear()
    step.rows.clear()
    assert trace[0] == make_step()


def test_events_come_in_order_and_late_ones_last() -> None:
    trace = RunTrace()
    for index in range(3):
        trace.append(make_step(index, events=[Event(index, "arrived", index)] if index != 1 else []))
    trace.late_events = [Event(9.0, "aborted", 0)]
    assert [event.time for event in trace.events()] == [0, 2, 9.0]


def busy_trace() -> RunTrace:
    """Preemption, refusal, abort, a reconfiguration, a carried row: everything a trace can hold."""
    engine = make_engine(blocks=6, batching="static:2")
    requests = [request(id, 6, 4 + 5 * id, arrival=id * 0.02) for id in range(4)] + [request(4, 99, 1)]
    engine.abort(3)
    driver = Driver(engine, requests, VirtualClock())
    for _ in range(9):
        driver.tick()
    engine.abort(3)
    engine.reconfigure(chunking=engine.scheduler.axes.chunking)
    trace = driver.run()
    trace.meta |= {"clock": "virtual"}
    return trace


def test_jsonl_gives_back_an_equal_trace_and_report(tmp_path: Path) -> None:
    trace = busy_trace()
    kinds = {event.kind for event in trace.events()}
    assert {"arrived", "admitted", "finished", "delivered", "refused", "reconfigured", "aborted"} <= kinds
    trace.write(tmp_path / "run.jsonl")
    again = RunTrace.read(tmp_path / "run.jsonl")
    assert list(again) == list(trace) and again.meta == trace.meta and again.requests == trace.requests
    assert list(again.events()) == list(trace.events())
    slo = {"ttft": 0.2, "tpot": 0.05}
    one, two = Report.from_trace(trace, slo), Report.from_trace(again, slo)
    assert one.to_dict() == two.to_dict() and one.times == two.times and one.outputs == two.outputs
    assert one.tokens_sha256 is not None and one.goodput_rps is not None


def test_margins_survive_jsonl(tmp_path: Path) -> None:
    trace = run_all([request(0, 3, 2)]).flush()
    trace.write(tmp_path / "run.jsonl")
    rows = [row for step in RunTrace.read(tmp_path / "run.jsonl") for row in step.rows]
    assert [row.margin for row in rows] == [1.0, 1.0] and rows == [row for step in trace for row in step.rows]


def test_one_line_for_the_run_one_per_request_one_per_step(tmp_path: Path) -> None:
    trace = busy_trace()
    trace.write(tmp_path / "run.jsonl")
    kinds = [next(iter(json.loads(line))) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert kinds == ["run"] + ["request"] * 5 + ["step"] * len(trace) + ["late_events"]


BROKEN = {
    "cut off": '{"step": {"index": 0,',
    "no JSON": "hello",
    "empty": "",
    "unknown kind": '{"stride": {}}',
    "two kinds": '{"run": {}, "late_events": []}',
    "no kind": "{}",
    "a request without a length": '{"request": {"id": 1, "arrival_time": 0.0}}',
    "a request that is a list": '{"request": [1]}',
    "a step without rows": '{"step": {"events": []}}',
    "a row with too few numbers": '{"step": {"rows": [[1]], "events": []}}',
    "text for a number": '{"late_events": [5]}',
}


@pytest.mark.parametrize("line", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("number", [1, 4])
def test_a_broken_line_is_named_by_its_number(tmp_path: Path, line: str, number: int) -> None:
    path = tmp_path / "run.jsonl"
    run_all([request(0, 3, 5)]).flush().write(path)
    lines = path.read_text().splitlines()
    lines[number - 1] = line
    path.write_text("\n".join([*lines, ""]))
    with pytest.raises(BadWorkload, match=f"run.jsonl, line {number}: "):
        RunTrace.read(path)


@pytest.mark.parametrize("line", [b"[1, 2]", b"5", b"null", b'{"late_events": "\xff"}'], ids=str)
def test_a_line_that_is_no_object_is_named_too(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"run": {}}\n' + line + b"\n")
    with pytest.raises(BadWorkload, match="line 2"):
        RunTrace.read(path)


def test_request_info_keeps_how_it_ended() -> None:
    trace = busy_trace()
    reasons = {info.id: info.finish_reason for info in trace.requests.values()}
    assert reasons == {0: "length", 1: "length", 2: "length", 3: "abort", 4: "refused"}
    assert isinstance(trace.requests[4], RequestInfo) and "needs 25 blocks" in trace.requests[4].error
