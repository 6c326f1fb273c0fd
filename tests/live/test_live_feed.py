"""What travels to the browser: complete, in step with the trace, bounded."""

from __future__ import annotations

import json
from math import inf

import pytest
from oracles import HashModel
from test_live_session import RUNS, work

import lab
from lab.live import style
from lab.live.feed import KEPT_REQUESTS, KEPT_STEPS
from lab.live.figures import replay
from lab.live.monitor import Reading
from lab.live.sample import Sample
from lab.live.series import Series, Usage
from lab.live.session import Session


class Page:
    """A browser's store: rebuilds rows and series from deltas."""

    def __init__(self):
        self.rows, self.series, self.steps, self.bytes = {}, {}, 0, 0

    def update(self, message):
        self.bytes += len(json.dumps(message))
        for news in message["lanes"]:
            for row in news["rows"]:
                old = self.rows.get((news["lane"], row[0]), [None] * 10 + [[]])
                bars = old[10][: row[9]] + row[10]
                self.rows[news["lane"], row[0]] = [*row[:10], bars, *row[11:]]
            self.steps += len(news["steps"])
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


def test_memory_and_messages_stay_bounded():
    session = Session(work(1500, gap=0.01), HashModel(), name="long", speed=inf, batching="continuous:4")
    page = Page()
    session.news.listeners.add(page)
    session.start()
    assert session.wait(120)
    session.stop()
    feed = session.lanes[0].feed
    assert feed.finished == 1500 and len(feed.rows) <= KEPT_REQUESTS + 1500 // 2
    assert len(feed.recent) <= KEPT_STEPS and len(feed.series) <= feed.series.limit
    assert sum(len(row.bars) for row in feed.rows.values()) < 10 * len(feed.rows)
    assert len(json.dumps(session.news.snapshot())) < 1_500_000


def test_series_keep_totals_when_they_are_thinned():
    series = Series(width=0.1, limit=16)
    for i in range(1000):
        series.add(i * 0.05, (i + 1) * 0.05, tokens=3, running=2, waiting=1, kinds=[1, 1, 0])
    wire = series.wire(whole=True)
    assert len(series) <= 16 and sum(wire["tokens"]) * wire["width"] == pytest.approx(3000, rel=1e-3)
    assert set(wire["running"]) == {2} and wire["from"] == 0


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
