"""What was not served, what is not shown, and early ends: the views say so, with the numbers of the report."""

from __future__ import annotations

from math import inf

import pytest
from test_live_session import RUNS, finished, session, until, work  # noqa: F401 (a fixture)

from lab.live import stills
from lab.live.blocks import Holding, Share, runs_of
from lab.workload import fixed_workload


def test_refused_requests_are_counted_with_the_first_reason(session):  # noqa: F811
    load = fixed_workload([(1,) * 300] * 3, [20] * 3, [0.0] * 3)
    one = finished(session(load, speed=inf, runs={"small": dict(batching="continuous:4", blocks=3)}))
    numbers = one.lanes[0].feed.numbers()
    assert (numbers["refused"], numbers["finished"], numbers["arrived"]) == (3, 0, 3)
    assert numbers["losses"].startswith("3 of 3 refused: request 0 needs 20 blocks, the most this engine can give is 3")
    still = one.still().bundle
    for text in still.values():
        assert "3 of 3 refused" in text and "needs 20 blocks" in text


def test_requests_given_up_are_counted(session):  # noqa: F811
    one = session(work(30), speed=5.0, runs={"only": dict(batching="continuous:4")})
    one.start()
    until(lambda: one.lanes and one.lanes[0].feed.steps > 1)
    one.abort(1)
    one.set(speed=inf)
    assert one.wait(20)
    aborted = 30 - one.report("only").finished
    assert one.lanes[0].feed.numbers()["losses"] == ("1 of 30 given up" if aborted else "")


@pytest.mark.parametrize("run", [*RUNS, "dynamic"])
def test_after_an_early_stop_the_numbers_are_those_of_the_report(session, run):  # noqa: F811
    runs = {run: RUNS.get(run) or dict(batching="dynamic:4:50ms")}
    one = session(work(40, gap=0.02), runs=runs, slo={"ttft": 0.5, "itl": 0.02})
    for steps in range(1, 41):  # somewhere in the middle of a batch
        one.step()
        until(lambda steps=steps: one.lanes and one.lanes[0].feed.steps == steps and one.state == "paused")
    one.stop()
    report, numbers = one.report(run), one.lanes[0].feed.numbers()
    assert 0 < report.finished == numbers["finished"] < 40
    assert numbers["ttft_p50"] == pytest.approx(report.ttft_s.p50)
    assert numbers["ttft_p95"] == pytest.approx(report.ttft_s.p95)
    assert numbers["itl_p50"] == pytest.approx(report.itl_s.p50)
    assert numbers["itl_p95"] == pytest.approx(report.itl_s.p95)
    assert (numbers["slo"]["met"], numbers["slo"]["judged"]) == (
        sum(times.meets(one.slo) for times in report.times.values() if times.done),
        report.finished,
    )


def test_the_still_says_which_requests_it_shows_and_when_the_blocks_were_held(session):  # noqa: F811
    one = finished(session(work(50), speed=inf, runs={"only": dict(batching="continuous:4", blocks=64)}))
    html = one.still().bundle["text/html"]
    fullest = one.lanes[0].feed.film.fullest
    assert "the last 40 of 50 requests" in html
    assert (
        f"</b>, at its fullest, after step {fullest.index}</p>" in html and fullest.index < len(one.lanes[0].trace) - 1
    )
    assert f"at its fullest, 64 blocks of 16 tokens after step {fullest.index}:" in one.still().bundle["text/plain"]
    few = finished(session(work(12), speed=inf, name="few", runs={"only": dict(batching="continuous:4")}))
    assert "the last" not in few.still().bundle["text/html"]


def test_a_large_pool_has_a_picture_too():
    shares = (Share(3, 16_000, runs_of(range(1000))), Share(4, 1600, runs_of(range(2000, 2100))))
    frame = Holding(7, 29_205, 16, shares, runs_of(range(20_000, 20_500)))
    picture = stills.block_map("large", frame)
    assert stills.per_square(frame) == 29 and picture.count("<path") == 4  # two requests, the cache, free blocks
    squares = picture.count("M")
    assert squares == -(-29_205 // 29) and len(picture) < 60_000


def test_padding_is_drawn_in_the_still(session):  # noqa: F811
    html = finished(session(speed=inf)).still().bundle["text/html"]
    assert 'fill="url(#lab-padding)"' in html and 'fill="url(#lab-wasted)"' in html and 'id="lab-padding"' in html
