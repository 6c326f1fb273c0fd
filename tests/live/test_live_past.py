"""Looking back at a run: the very numbers of its RunTrace, whatever the step, in answers of bounded size."""

from __future__ import annotations

import json
from math import inf

import pytest
from oracles import HashModel
from test_live_session import RUNS, finished, session, until, work  # noqa: F401 (a fixture)

from lab.errors import BadRequest
from lab.live import past
from lab.live.session import Session
from lab.live.split import time_split

EXACT = ("index", "start", "end", "attention", "waiting", "running", "free", "used", "cached", "recomputed")
SUMS = ("computed", "padded", "sampled", "carried", "slots", "resident")


@pytest.fixture(scope="module")
def lanes():
    one = Session(work(40), HashModel(), RUNS | {"tight": dict(batching="continuous:8", blocks=8)}, name="p", speed=inf)
    finished(one)
    yield {lane.name: lane for lane in one.lanes}
    one.halt()


@pytest.mark.parametrize("name", [*RUNS, "tight"])
def test_every_step_is_that_of_the_trace(lanes, name):
    lane = lanes[name]
    for index in range(len(lane.trace)):
        answer = json.loads(json.dumps(past.look(lane, index)))
        assert answer["index"] == index and answer["count"] == len(lane.trace)
        shown = {step["index"]: step for step in answer["steps"]}
        for place in range(max(0, index - past.NEAR), min(len(lane.trace), index + past.NEAR + 1)):
            step = lane.trace[place]
            assert [shown[place][key] for key in EXACT + SUMS] == [getattr(step, key) for key in EXACT + SUMS]
            prompts = [lane.trace.requests[row.request].num_prompt for row in step.rows]
            expected = [[*row[:5], prompt] for row, prompt in zip(step.rows, prompts, strict=True)]
            assert shown[place]["rows"] == expected
            assert [tuple(event) for event in shown[place]["events"]] == [tuple(event) for event in step.events]


def test_steps_beyond_either_end_are_the_first_and_the_last(lanes):
    lane = lanes["static"]
    assert past.look(lane, -5)["index"] == 0
    assert past.look(lane, 10**9)["index"] == len(lane.trace) - 1


def test_the_blocks_of_a_step_are_those_it_left(session):  # noqa: F811
    one = session(speed=1.0, runs={"only": dict(batching="continuous:4", prefix_cache="radix", blocks=64)})
    for count in range(1, 13):  # while paused there is time for a picture of every step
        one.step()
        until(lambda count=count: one.lanes and one.lanes[0].feed.steps == count and one.state == "paused")
    lane = one.lanes[0]
    until(lambda: lane.feed.film.latest.index == 11)
    for index in range(12):
        blocks, step = past.look(lane, index)["blocks"], lane.trace[index]
        counts = blocks["counts"]
        assert blocks["step"] == index
        assert (counts["free"], counts["cached"], counts["own"] + counts["shared"]) == (
            step.free,
            step.cached,
            step.used,
        )
        assert {share[0] for share in blocks["held"]} <= set(lane.trace.requests)


def test_the_requests_around_a_step_are_drawn_as_they_were(lanes):
    lane = lanes["tight"]
    whole = {row[0]: row for row in lane.feed.snapshot(0.0)["rows"]}
    view = past.look(lane, len(lane.trace) // 2, around=True)["view"]
    first, last = view["steps"][0][0], view["steps"][-1][0]
    assert last - first + 1 == min(len(lane.trace), past.AROUND) == len(view["steps"])
    assert view["steps"] == [step for step in lane.feed.recent if first <= step[0] <= last]
    computing = 0
    for row in view["rows"]:
        seen = [bar for bar in row[10] if bar[0] not in (0, 4, 5)]  # what it computed, not what it waited
        true = [bar for bar in whole[row[0]][10] if bar[0] not in (0, 4, 5)]
        computing += bool(seen)
        assert all(any(a[1] <= b[1] and b[2] <= a[2] and a[0] == b[0] for a in true) for b in seen)
    assert computing >= 8


def test_who_waited_and_ran_is_known_at_the_edge_of_the_window(lanes, monkeypatch):
    monkeypatch.setattr(past, "AROUND", 10)
    lane = lanes["static"]
    for index in range(20, len(lane.trace), 17):
        view = past.view(lane.trace, index, lane.trace.meta)
        step = lane.trace[view["steps"][-1][0]]
        states = [row[4] for row in view["rows"]]
        assert states.count("running") == step.running
        assert states.count("waiting") >= step.waiting  # those who came during the step are there too
        json.dumps(view)


def test_answers_stay_small(lanes):
    for lane in lanes.values():
        for index in range(0, len(lane.trace), 25):
            assert len(json.dumps(past.look(lane, index, around=True))) < 120_000


def test_why_is_the_time_split(lanes):
    for lane in lanes.values():
        for request in lane.trace.requests:
            reason = past.why(lane, request)
            assert reason["parts"] == time_split(lane.trace, request)
            assert reason["total"] == pytest.approx(sum(reason["parts"].values()))
            assert reason["ended"] in ("stop", "length")
    with pytest.raises(BadRequest, match="request 999"):
        past.why(lane, 999)


def test_a_look_at_nothing(session):  # noqa: F811
    one = session(work(gap=100.0), speed=1.0)
    one.start()
    until(lambda: bool(one.lanes))
    assert past.look(one.lanes[0], 0) is None
