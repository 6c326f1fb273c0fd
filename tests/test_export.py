"""Chrome trace events: the format's rules, and that the slices tell the run's story as the trace does."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import test_stretches as stretches
from oracles import HashModel

import lab
from lab import export
from lab.errors import BadPolicy
from lab.export import chrome_trace, trace_events
from lab.live.split import time_split
from lab.request_spans import stories
from lab.trace import Event, RequestInfo, RowTrace, RunTrace, StepTrace
from lab.workload import fixed_workload

COMMON = {"ph", "name", "pid", "ts"}
FIELDS = {  # by phase: what must be there besides COMMON, and what may be
    "M": ({"args"}, {"tid"}),
    "X": ({"tid", "dur", "cat", "args"}, set()),
    "i": ({"s", "args"}, {"tid", "cat"}),
    "C": ({"args", "cat"}, set()),
    "s": ({"tid", "cat", "id"}, set()),
    "f": ({"tid", "cat", "id", "bp"}, set()),
}


def check_format(events: list[dict]) -> None:
    """The rules of the Trace Event Format, and those of Perfetto's importer that are stricter."""
    for event in events:
        needed, allowed = FIELDS[event["ph"]]
        assert COMMON | needed <= set(event) <= COMMON | needed | allowed, event
        assert isinstance(event["ts"], int) and event["ts"] >= 0 and isinstance(event["name"], str) and event["name"]
        for key in ("pid", "tid", "id"):
            assert key not in event or (isinstance(event[key], int) and 0 < event[key] < 2**32), event
        if event["ph"] == "X":
            assert isinstance(event["dur"], int) and event["dur"] > 0, event
        if event["ph"] == "i":
            assert event["s"] in ("t" if "tid" in event else "p"), event
        if event["ph"] == "C":
            assert event["args"] and all(type(value) in (int, float) for value in event["args"].values()), event
    check_names(events)
    timed = [event for event in events if event["ph"] != "M"]
    assert [e["ts"] for e in timed] == sorted(e["ts"] for e in timed)
    assert events == [e for e in events if e["ph"] == "M"] + timed, "names come first"
    check_nesting(timed)
    check_arrows(timed)


def check_names(events: list[dict]) -> None:
    named = defaultdict(dict)
    for event in events:
        if event["ph"] == "M":
            key = {"process_labels": "labels"}.get(event["name"], "sort_index" if "sort" in event["name"] else "name")
            assert set(event["args"]) == {key}, event
            named[event["name"]][event.get("tid", event["pid"])] = event["args"][key]
    assert {e["pid"] for e in events} == set(named["process_name"])
    threads = {(e["pid"], e["tid"]) for e in events if "tid" in e}
    assert len({tid for _, tid in threads}) == len(threads), "a thread number belongs to one process"
    assert {tid for _, tid in threads} == set(named["thread_name"]) == set(named["thread_sort_index"])
    assert not {tid for _, tid in threads} & set(named["process_name"])


def check_nesting(timed: list[dict]) -> None:
    """Slices of a thread lie inside one another or apart, the outer one first."""
    open_until = defaultdict(list)
    for event in timed:
        if event["ph"] == "X":
            stack = open_until[event["tid"]]
            while stack and stack[-1] <= event["ts"]:
                stack.pop()
            end = event["ts"] + event["dur"]
            assert not stack or end <= stack[-1], f"{event} sticks out of the slice that holds it"
            stack.append(end)


def check_arrows(timed: list[dict]) -> None:
    """Each begins once and ends once, later or at once, both inside a slice."""
    slices = [e for e in timed if e["ph"] == "X"]
    begins, ends = ({e["id"]: e for e in timed if e["ph"] == phase} for phase in "sf")
    assert set(begins) == set(ends) and len(begins) + len(ends) == sum(e["ph"] in "sf" for e in timed)
    for number, begin in begins.items():
        end = ends[number]
        assert (begin["name"], begin["cat"], end["bp"]) == (end["name"], end["cat"], "e") and begin["ts"] <= end["ts"]
        for event in (begin, end):
            assert any(s["tid"] == event["tid"] and s["ts"] <= event["ts"] < s["ts"] + s["dur"] for s in slices), (
                f"{event} is in no slice"
            )


def work():
    """Sixteen requests, three hundredths of a second apart."""
    draw = random.Random(1)
    prompts = [tuple(draw.randrange(1000) for _ in range(draw.randint(5, 40))) for _ in range(16)]
    return fixed_workload(prompts, [draw.randint(4, 30) for _ in prompts], [0.03 * i for i in range(16)])


@pytest.fixture(scope="module")
def compared():
    runs = {
        "static": dict(batching="static:4"),
        "dynamic": dict(batching="dynamic:4:20ms", attention="packed"),
        "chunked": dict(batching="continuous:4", chunking="budget:16"),
        "preempting": dict(batching="continuous:8", blocks=14, block_size=8),
        "swapping": dict(batching="continuous:8", blocks=14, block_size=8, host_blocks=64, preemption="swap"),
        "cached": dict(batching="continuous:4", prefix_cache="radix", block_size=4),
    }
    return {name: lab.run(work(), HashModel(), **options) for name, options in runs.items()}


NAMES = ("static", "dynamic", "chunked", "preempting", "swapping", "cached")


@pytest.mark.parametrize("name", NAMES)
def test_every_run_follows_the_format(compared, name):
    check_format(trace_events(compared[name]))


def test_several_runs_lie_side_by_side(compared):
    events = trace_events(compared)
    check_format(events)
    labels = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert labels[:2] == ["static: engine", "static: requests"] and len(labels) == 2 * len(compared)
    assert {e["args"]["labels"] for e in events if e["name"] == "process_labels"} == {"simulated"}


def seconds_by_kind(events: list[dict], request: int) -> dict[str, float]:
    (tid,) = {e["tid"] for e in events if e["name"] == "thread_name" and e["args"]["name"] == f"request {request}"}
    totals: dict[str, float] = defaultdict(float)
    for event in events:
        if event["ph"] == "X" and event["tid"] == tid and not event["name"].startswith("step "):
            totals[event["name"]] += event["dur"] / 1e6
    return totals


@pytest.mark.parametrize("name", NAMES)
def test_phases_are_those_of_the_time_split(compared, name):
    report, events = compared[name], trace_events(compared[name])
    for request in report.times:
        found, split = seconds_by_kind(events, request), time_split(report.trace, request)
        assert found["queueing"] == pytest.approx(split["queueing"], abs=1e-4)
        worked = found["prefill"] + found["decode"] + found["preempted"]
        assert worked == pytest.approx(split["prefill"] + split["decode"] + split["preemption"], abs=1e-4)
        assert found["stalled"] == pytest.approx(split["stall"], abs=1e-4)
        held = found["delivery"] + found["finished, still computed"]
        assert held == pytest.approx(split["delivery"], abs=1e-4)


def test_steps_and_tokens_are_all_there(compared):
    report = compared["chunked"]
    events = trace_events(report)
    steps = [e for e in events if e.get("cat") == "step"]
    assert [e["args"]["index"] for e in steps] == list(range(report.steps))
    assert sum(e["args"]["computed"] for e in steps) == report.computed_tokens
    phases = [e for e in events if e["ph"] == "X" and e["name"] in ("prefill", "decode")]
    assert sum(e["args"]["tokens"] for e in phases) == report.computed_tokens
    parts = [e for e in events if e.get("cat") == "request" and e["name"].startswith("step ")]
    assert sum(e["args"]["tokens"] for e in parts) == report.computed_tokens
    last = [e["args"] for e in events if e["ph"] == "C" and e["name"] == "requests"][-1]
    assert last == {"waiting": 0, "running": 0}


def test_what_happened_once_is_marked_once(compared):
    for name in ("preempting", "swapping"):
        report, events = compared[name], trace_events(compared[name])
        marks = Counter(e["name"] for e in events if e["ph"] == "i")
        assert report.preemptions > 0 and marks["preempted"] == report.preemptions
        assert marks["arrived"] == marks["first token"] == marks["finished"] == report.requests
        arrows = Counter(e["name"] for e in events if e["ph"] == "f")
        assert arrows["after preempted"] == report.preemptions
    cached = [e["args"].get("cached", 0) for e in trace_events(compared["cached"]) if e["name"] == "queueing"]
    assert sum(cached) <= compared["cached"].cached_tokens


def test_without_parts_the_phases_stay(compared, monkeypatch):
    full, short = trace_events(compared["static"]), trace_events(compared["static"], parts=False)
    kinds = [Counter(e["name"] for e in events if e["ph"] == "X" and e["cat"] == "request") for events in (full, short)]
    assert any(name.startswith("step ") for name in kinds[0])
    assert kinds[1] == {k: v for k, v in kinds[0].items() if not k.startswith("step ")}
    check_format(short)
    monkeypatch.setattr(export, "MOST_PARTS", 3)
    assert trace_events(compared["static"]) == short


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_the_file_is_one_json_object(compared, tmp_path, name):
    path = tmp_path / name
    number = chrome_trace(compared["static"], path)
    text = gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()
    record = json.loads(text)
    assert set(record) == {"traceEvents", "displayTimeUnit", "otherData"} and record["displayTimeUnit"] == "ms"
    assert len(record["traceEvents"]) == number and record["traceEvents"] == trace_events(compared["static"])
    assert record["otherData"]["runs"]["static:4"]["clock"] == "virtual"


def test_a_trace_read_from_jsonl_gives_the_same(compared, tmp_path):
    trace = compared["preempting"].trace
    trace.write(tmp_path / "run.jsonl")
    assert trace_events(RunTrace.read(tmp_path / "run.jsonl")) == trace_events(trace)


def two_streams() -> RunTrace:
    """Steps that overlap in time: request 0 decodes while the prompt of request 1 is computed."""
    trace = RunTrace(requests={n: RequestInfo(n, 0.0, 4, 3, finish_reason="length") for n in (0, 1)})

    def step(index, start, end, rows, events):
        return StepTrace(index, start, end, "packed", rows, events, 0, 2, 8, 2, 0)

    arrived = [Event(0.0, "arrived", n) for n in (0, 1)] + [Event(0.0, "admitted", n) for n in (0, 1)]
    trace.append(step(0, 0.0, 0.1, [RowTrace(0, 0, 4, 0, True, 5)], arrived))
    trace.append(step(1, 0.1, 0.2, [RowTrace(0, 4, 1, 0, True, 5)], []))
    trace.append(step(2, 0.0, 0.25, [RowTrace(1, 0, 4, 0, True, 5)], []))
    trace.append(step(3, 0.25, 0.3, [RowTrace(1, 4, 1, 0, True, 5)], []))
    trace.append(step(4, 0.2, 0.35, [RowTrace(0, 5, 1, 0, True, 5)], [Event(0.35, "finished", 0, 3)]))
    return trace


def test_overlapping_steps_get_tracks_of_their_own():
    events = trace_events(two_streams())
    check_format(events)
    steps = [e for e in events if e.get("cat") == "step"]
    assert len(steps) == 5 and len({e["tid"] for e in steps}) == 2
    assert not seconds_by_kind(events, 1)["stalled"], "a request that is in flight elsewhere does not stall"


def test_steps_without_an_admitted_request_are_a_stall():
    trace = two_streams()
    alone = RunTrace(requests=trace.requests)
    rows = ([(0, 0, 4), (1, 0, 4)], [(0, 4, 1)], [(0, 5, 1)], [(1, 4, 1)])
    for index, computed in enumerate(rows):
        step = trace[0]
        step.index, step.start, step.end = index, 0.1 * index, 0.1 * index + 0.1
        step.rows = [RowTrace(*row, 0, True, 5) for row in computed]
        step.events = step.events if index == 0 else [Event(step.end, "finished", 0, 3)] if index == 2 else []
        alone.append(step)
    events = trace_events(alone)
    check_format(events)
    found = seconds_by_kind(events, 1)
    assert found == {"prefill": 0.1, "stalled": pytest.approx(0.2), "decode": pytest.approx(0.1)}
    assert time_split(alone, 1)["stall"] == pytest.approx(0.2)
    assert [e["args"] for e in events if e["name"] == "stalled"] == [{"steps without it": 2}]


def test_an_empty_run_is_an_empty_picture(tmp_path):
    check_format(trace_events(RunTrace()))
    assert chrome_trace(RunTrace(), tmp_path / "x.json") == 7
    record = json.loads((tmp_path / "x.json").read_text())
    assert record["otherData"]["notes"] == ["run: no step was computed."]
    (said,) = [e["name"] for e in record["traceEvents"] if e["ph"] == "i"]
    assert said == "no step was computed"
    assert chrome_trace({}, tmp_path / "none.json") == 0
    assert "No run was given" in json.loads((tmp_path / "none.json").read_text())["otherData"]["notes"][0]


def test_a_run_that_refuses_everything_says_so():
    report = lab.run(work(), HashModel(), batching="continuous:4", blocks=1, block_size=4)
    assert report.finished == 0
    events = trace_events(report)
    check_format(events)
    assert "no step was computed, 16 of 16 requests were refused" in {e["name"] for e in events if e["ph"] == "i"}
    assert export.notes(report) == ["continuous:4: no step was computed, 16 of 16 requests were refused."]


@pytest.mark.parametrize("runs", [None, [], [RunTrace()], 3, {"a": None}, {"a": [RunTrace()]}])
def test_what_is_no_run_is_named(runs, tmp_path):
    with pytest.raises(BadPolicy, match="is no run"):
        chrome_trace(runs, tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()


def test_meta_that_json_cannot_say_becomes_text(compared, tmp_path):
    trace = RunTrace(meta={"rate": float("nan"), "deep": {1: [float("inf"), 2.5]}, "thing": Path("a"), "none": None})
    trace.append(compared["static"].trace[0])
    trace.requests = compared["static"].trace.requests
    chrome_trace(trace, tmp_path / "x.json")

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    record = json.loads((tmp_path / "x.json").read_text(), parse_constant=refuse)
    meta = record["otherData"]["runs"]["run"]
    assert meta == {"rate": "nan", "deep": {"1": ["inf", 2.5]}, "thing": "a", "none": None}


def test_leaving_steps_out_is_said(compared, tmp_path, monkeypatch, capsys):
    assert not export.notes(compared) and export.MOST_PARTS <= 50_000
    monkeypatch.setattr(export, "MOST_PARTS", 3)
    chrome_trace(compared["static"], tmp_path / "x.json")
    (said,) = json.loads((tmp_path / "x.json").read_text())["otherData"]["notes"]
    rows = sum(len(step.rows) for step in compared["static"].trace)
    assert f"{rows:,} slices, more than 3" in said and "parts=True" in said
    assert not export.notes(compared["static"], parts=True)


def test_stretches_tell_the_same_story_without_their_steps():
    drawn = stretches.workload(3)
    trace = stretches.drive(drawn, True, batching="continuous:6", blocks=120)
    assert max(entry.repeat for entry in trace.entries()) > 5
    full, brief = stories(trace), stories(trace, parts=False)
    for story in full.values():
        for span in story.spans:
            span.parts = []
    assert brief == full


def test_the_validator_sees_slices_that_overlap():
    track = {"ph": "X", "name": "a", "cat": "c", "pid": 1, "tid": 2, "args": {}}
    with pytest.raises(AssertionError, match="sticks out"):
        check_nesting([track | {"ts": 0, "dur": 10}, track | {"ts": 5, "dur": 10}])


def test_the_command_line_writes_both_formats(tmp_path: Path, capsys):
    from lab.cli import main

    chrome, lines = tmp_path / "run.json", tmp_path / "run.jsonl"
    options = [
        "--model",
        "tiny",
        "--requests",
        "3",
        "--max-tokens",
        "4",
        "--rate",
        "1000",
        "--batching",
        "continuous:2",
    ]
    assert main(["run", *options, "--trace", str(lines), "--chrome-trace", str(chrome)]) == 0
    check_format(json.loads(chrome.read_text())["traceEvents"])
    assert len(RunTrace.read(lines)) > 0
    assert "ui.perfetto.dev" in capsys.readouterr().out
