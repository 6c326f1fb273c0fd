"""The batch strip: steps that are too many for a message or a page are merged, and none is lost."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from math import inf
from pathlib import Path

import pytest
from oracles import HashModel
from test_live_session import work

import lab.live.dashboard
from lab.live import stills
from lab.live.feed import Feed
from lab.live.parcel import SENT_STEPS
from lab.live.session import Session
from lab.live.steps import History, Merged, count_of
from lab.trace import RequestInfo, RowTrace, StepTrace


def record(index: int, rows: int = 2, gap: float = 0.0, took: float = 1.0):
    start = index * (took + gap)
    return [index, start, start + took, 0, rows, 0, rows, 1, rows, rows, 0, 5, 6, 0]


def covered(records) -> None:
    """Every step once, in order."""
    expected = 0
    for entry in records:
        assert entry[0] == expected
        expected += count_of(entry)


@pytest.mark.parametrize("make", [Merged, History])
def test_every_step_stays_and_the_newest_as_it_is(make):
    kept = make(40)
    for index in range(5000):
        kept.append(record(index, rows=1 + index % 4))
        assert len(kept) <= 40
    records = list(kept)
    covered(records)
    assert records[-1] == record(4999, rows=4)
    assert all(a[2] == b[1] for a, b in zip(records, records[1:], strict=False)), "a busy time looks idle"
    assert sum(entry[6] for entry in records) == sum(1 + index % 4 for index in range(5000))
    assert max(count_of(entry) for entry in records) <= 512, "all equally coarse"
    assert records[0][15:] == [1, 4] and records[0][4] == pytest.approx(2.5, abs=0.01)


def test_waiting_between_steps_is_kept_as_long_as_possible():
    kept = Merged(40)
    for index in range(60):
        kept.append(record(index) if index < 50 else record(index, took=1.0, gap=3.0))
    lone = [entry for entry in kept if entry[0] >= 50]
    assert [count_of(entry) for entry in lone] == [1] * 10 and len(kept) <= 40
    for index in range(60, 600):
        kept.append(record(index, took=1.0, gap=3.0))
    assert len(kept) <= 40
    covered(kept)
    first = list(kept)[-2]  # a merged one: a quarter of its time was busy, with two rows
    assert count_of(first) > 8 and first[4] == pytest.approx(0.5, rel=0.15)


def test_a_busy_tick_reaches_the_page_whole():
    feed = Feed("busy")
    infos = {0: RequestInfo(0, 0.0, 4, 9999)}
    for index in range(3000):
        rows = [RowTrace(0, index, 1, 0, True)]
        feed.take(StepTrace(index, index * 0.01, (index + 1) * 0.01, "packed", rows, [], 0, 1, 7, 1, 0), infos, False)
    news = feed.drain(30.0)
    assert len(news["steps"]) <= SENT_STEPS
    covered(news["steps"])
    assert feed.drain(30.0) is None
    covered(feed.snapshot(30.0)["steps"])


def test_a_run_in_fast_motion_has_no_hole_in_its_strip():
    session = Session(work(300, gap=0.01), HashModel(), name="hole", speed=inf, batching="continuous:4")
    seen = []

    class Page:
        def update(self, message):
            seen.extend(record for lane in message["lanes"] for record in lane["steps"])

    page = Page()
    session.news.listeners.add(page)
    session.start()
    assert session.wait(60)
    session.stop()
    covered(seen)
    assert sum(map(count_of, seen)) == len(session.lanes[0].trace)
    covered(session.news.snapshot()["lanes"][0]["steps"])


SCRIPT = lab.live.dashboard.STATIC


def in_node(*files: str, then: str):
    """What a piece of the page's own script prints as JSON."""
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    text = "class View {}\n" + "\n".join((Path(SCRIPT) / f"{name}.js").read_text(encoding="utf-8") for name in files)
    done = subprocess.run(["node", "-e", text + "\n" + then], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def test_the_page_merges_old_steps_too():
    then = (
        "const lane = new LaneStore();"
        "const news = (i) => ({ gone: [], rows: [], steps: [[i, i, i + 1, 0, 1 + i % 4, 0, 1, 0, 1, 1, 0, 5, 6, 0]],"
        " series: { width: 1, from: 0 }, usage: { sources: {}, from: 0, points: [] } });"
        "for (let i = 0; i < 20000; i += 1) lane.apply(news(i), false);"
        "console.log(JSON.stringify([lane.steps, stepAt(lane.steps, 77)[0]]));"
    )
    steps, found = in_node("store", then=then)
    covered(steps)
    assert len(steps) <= 4001 and found <= 77
    assert [count_of(entry) for entry in steps[-2000:]] == [1] * 2000 and steps[-1][0] == 19999
    assert all(a[2] == b[1] for a, b in zip(steps, steps[1:], strict=False))


def test_page_and_still_call_a_request_by_its_id():
    ids = [0, 48, 1_000_000, 48 + (2 << 32)]
    names = [stills.name(request) for request in ids]
    assert names == ["0", "48", "sent by hand (id 1000000)", "48 (sample 3)"]
    assert in_node("pointer", then=f"console.log(JSON.stringify({ids}.map(nameOfId)))") == names


def test_the_legend_tells_every_kind_from_the_others():
    from lab.live import style

    looks = [(kind.color, kind.hatched, kind.backward, kind.thin) for kind in style.KINDS if kind.name != "held"]
    assert len(set(looks)) == len(looks)
    swatches = [stills.swatch(kind) for kind in style.KINDS if kind.hatched]
    assert len(set(swatches)) == len(swatches) and all(re.match("repeating", swatch) for swatch in swatches)
