"""What travels to the browser: complete, in step with the trace, bounded."""

from __future__ import annotations

import json
import time
from math import inf

import pytest
from oracles import HashModel
from test_live_session import RUNS, work

import lab
from lab.errors import BadPolicy
from lab.live import style
from lab.live.feed import KEPT_REQUESTS, KEPT_STEPS, KEPT_WAITING
from lab.live.figures import replay
from lab.live.monitor import Reading
from lab.live.sample import Sample
from lab.live.series import Series, Usage
from lab.live.session import Session
from lab.live.steps import count_of
from lab.trace import RowTrace, StepTrace
from lab.workload import fixed_workload


class Page:
    """A browser's store: rebuilds rows and series from deltas."""

    def __init__(self):
        self.rows, self.series, self.steps, self.bytes = {}, {}, 0, 0

    def update(self, message):
        self.bytes += len(json.dumps(message))
        for news in message["lanes"]:
            for gone in news["gone"]:
                self.rows.pop((news["lane"], gone), None)
            for row in news["rows"]:
                old = self.rows.get((news["lane"], row[0]), [None] * 10 + [[]])
                bars = old[10][: row[9]] + row[10]
                self.rows[news["lane"], row[0]] = [*row[:10], bars, *row[11:]]
            self.steps += sum(count_of(record) for record in news["steps"])
            series = dict(news["series"])
            width, begin = series.pop("width"), series.pop("from")
            for name, values in series.items():
                key = (news["lane"], name)
                self.series[key] = self.series.get(key, [])[:begin] + values if begin else values
            self.series[news["lane"], "width"] = width


def played(requests: int = 24, **options) -> tuple[Session, Page]:
    session, page = Session(work(requests), HashModel(), RUNS, speed=30.0, name="feed", **options), Page()
    session.news.listeners.add(page)
    session.start()
    assert session.wait(60)
    session.stop()
    return session, page


def test_deltas_add_up_to_the_snapshot():
    session, page = played()
    whole = session.news.snapshot()
    for news in whole["lanes"]:
        for row in news["rows"]:
            seen = page.rows[news["lane"], row[0]]
            assert seen[:9] == row[:9] and seen[10] == row[10]
        for name, values in news["series"].items():
            if isinstance(values, list):
                assert page.series[news["lane"], name] == values
    assert page.steps == sum(len(lane.trace) for lane in session.lanes)
    json.dumps(whole)


def test_bars_tell_the_story_of_the_trace():
    report = lab.run(work(), HashModel(), batching="static:4")
    feed = replay(report)
    for request, times in report.times.items():
        row = feed.rows[request]
        kinds = [style.KINDS[bar.kind].name for bar in row.bars]
        assert kinds[0] in ("queue", "prefill") and kinds.count("decode") <= 1
        assert sum(bar.real for bar in row.bars) == report.trace.requests[request].num_prompt + row.output - 1
        assert row.first == pytest.approx(times.arrival + times.ttft)
        assert all(a.end <= b.start + 1e-9 for a, b in zip(row.bars, row.bars[1:], strict=False))
        assert row.bars[0].start == pytest.approx(times.arrival)


def test_preemption_is_seen():
    report = lab.run(work(gap=0.0), HashModel(), batching="continuous:8", blocks=8)
    feed = replay(report)
    assert report.preemptions > 0 and feed.preemptions == report.preemptions
    kinds = {style.KINDS[bar.kind].name for row in feed.rows.values() for bar in row.bars}
    assert "preempted" in kinds


def test_tokens_found_in_a_cache_are_seen_in_the_bars():
    heads = [tuple(range(i, i + 48)) for i in (0, 500)]
    load = fixed_workload([heads[i % 2] + (i, i + 1) for i in range(10)], [6] * 10, [0.3 * i for i in range(10)])
    report = lab.run(load, HashModel(), batching="continuous:4", prefix_cache="radix")
    feed = replay(report)
    cached = {request: sum(bar.cached for bar in row.bars) for request, row in feed.rows.items()}
    assert cached == {request: 48 if request > 1 else 0 for request in range(10)}
    assert sum(cached.values()) == report.cached_tokens == feed.work["cached"]
    assert feed.rows[5].wire(whole=True)[10][0][5] == 48 and feed.rows[5].wire(whole=True)[12] == 48


@pytest.mark.parametrize("batching", ["static:4", "continuous:4", "dynamic:4:50ms"])
@pytest.mark.parametrize(
    "slo", [{"ttft": 0.25}, {"itl": 0.0125}, {"tpot": 0.0121, "e2e": 0.9}, {"ttft": 1.0, "itl": 0.02}]
)
def test_those_within_the_limits_are_those_of_the_report(batching, slo):
    session = Session(work(24), HashModel(), name="slo", speed=inf, batching=batching, slo=slo)
    session.start()
    assert session.wait(60)
    session.stop()
    (report,) = session.reports.values()
    found = session.lanes[0].feed.numbers()["slo"]
    met = sum(times.meets(slo) for times in report.times.values())
    assert (found["met"], found["judged"]) == (met, 24) and report.slo == slo
    assert report.goodput_rps == pytest.approx(met / report.duration_s)
    if "ttft" in slo:
        assert found["ttft"] == sum(times.ttft <= slo["ttft"] for times in report.times.values()) / 24
    if "itl" in slo:
        gaps = [gap for times in report.times.values() for gap in times.gaps]
        assert found["itl"] == sum(gap <= slo["itl"] for gap in gaps) / len(gaps)


def test_shares_of_the_peak_are_those_of_the_report():
    load = fixed_workload([600] * 6, [20] * 6, [0.1 * i for i in range(6)])
    session = Session(load, lab.simulated("llama-3-8b", on="h100-sxm"), name="mfu", speed=inf, batching="continuous:4")
    session.start()
    assert session.wait(60)
    session.stop()
    (report,), feed = session.reports.values(), session.lanes[0].feed
    numbers = feed.numbers()
    assert 0 < numbers["mfu"] == pytest.approx(report.mfu) and 0 < numbers["mbu"] == pytest.approx(report.mbu)
    assert "H100" in session.news.snapshot()["lanes"][0]["peaks"]["source"]


def test_a_wrong_limit_is_refused_at_once():
    with pytest.raises(BadPolicy, match="speed"):
        Session(work(2), HashModel(), slo={"speed": 1})
    with pytest.raises(BadPolicy, match="ttft"):
        Session(work(2), HashModel(), slo={"ttft": -1})


def test_a_long_queue_is_not_sent_request_by_request():
    """3,000 requests at once: the page gets those that run, the first of the queue, and the number of the others."""
    load = fixed_workload([(1, 2, 3)] * 3000, [4] * 3000, [0.0] * 3000)
    session, page = Session(load, HashModel(), name="queue", speed=1e9, batching="continuous:8"), Page()
    session.news.listeners.add(page)
    session.step()
    deadline = time.monotonic() + 20
    while not (session.lanes and session.lanes[0].feed.steps and session.state == "paused"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    feed, state = session.lanes[0].feed, session.news.snapshot()
    assert feed.arrived == 3000 and len(feed.rows) <= KEPT_WAITING + 8
    assert state["lanes"][0]["steps"][-1][10] == 3000 - 8 and len(json.dumps(state)) < 60_000
    session.set(speed=inf)
    session.resume()
    assert session.wait(60)
    session.stop()
    assert feed.finished == 3000 and len(feed.ttft.values) == 3000
    assert set(page.rows) == {(0, request) for request in feed.rows}, "the page keeps rows that have left"


def test_memory_and_messages_stay_bounded():
    session = Session(work(1500, gap=0.01), HashModel(), name="long", speed=inf, batching="continuous:4")
    page = Page()
    session.news.listeners.add(page)
    session.start()
    assert session.wait(120)
    session.stop()
    feed = session.lanes[0].feed
    assert feed.finished == 1500 and len(feed.rows) <= KEPT_REQUESTS + KEPT_WAITING + 4
    assert len(feed.recent) <= KEPT_STEPS and len(feed.series) <= feed.series.limit
    assert sum(len(row.bars) for row in feed.rows.values()) < 10 * len(feed.rows)
    assert len(json.dumps(session.news.snapshot())) < 1_500_000


def test_series_keep_totals_when_they_are_thinned():
    series = Series(width=0.1, limit=16)
    for i in range(1000):
        rows = [RowTrace(row, 9, 1, 0, True) for row in range(3)]
        step = StepTrace(i, i * 0.05, (i + 1) * 0.05, "packed", rows, [], 1, 2, 7, 5, 4, flops=10.0, bytes=20.0)
        series.add(step, kinds=[1, 1, 0])
    wire = series.wire(whole=True)
    assert len(series) <= 16 and sum(wire["tokens"]) * wire["width"] == pytest.approx(3000, rel=1e-3)
    assert set(wire["running"]) == {2} and wire["from"] == 0 and set(wire["used"]) == {5} and set(wire["cached"]) == {4}
    assert sum(wire["flops"]) * wire["width"] == pytest.approx(10_000, rel=1e-3)
    assert sum(wire["bytes"]) * wire["width"] == pytest.approx(20_000, rel=1e-3)


def test_work_is_spread_over_the_time_of_a_long_step():
    series = Series(width=1.0, limit=16)
    rows = [RowTrace(0, 0, 9, 0, True)]
    series.add(StepTrace(0, 0.5, 4.5, "packed", rows, [], 0, 1, 7, 1, 0, flops=40.0, bytes=8.0), kinds=[1, 0, 0])
    wire = series.wire(whole=True)
    assert wire["flops"] == [5.0, 10.0, 10.0, 10.0, 5.0] and wire["bytes"] == [1.0, 2.0, 2.0, 2.0, 1.0]
    assert wire["tokens"] == [0, 0, 0, 0, 1] and wire["busy"] == [0.5, 1, 1, 1, 0.5]


def test_a_sample_is_exact_when_small_and_bounded_when_large():
    sample = Sample(limit=100)
    for value in range(100):
        sample.add(float(value))
    assert sample.quantile(0.5) == 49.5
    for value in range(1000):
        sample.add(float(value))
    assert len(sample.values) == 100 and sample.values == sorted(sample.values) and sample.count == 1100
    assert sample.curve(10)[0] == round(sample.values[0], 5) and len(sample.curve(10)) == 10
    sample.remove(sample.values[3])
    assert len(sample.values) == 99


def test_usage_is_thinned():
    usage = Usage(limit=10)
    for i in range(100):
        usage.add(float(i), [Reading("process", 50.0, "%", "somewhere")])
    assert len(usage.points) <= 10 and usage.wire(True)["sources"] == {"process": ["%", "somewhere"]}
