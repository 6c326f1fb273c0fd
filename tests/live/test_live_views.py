"""Figures, pictures, and which view is chosen."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from oracles import HashModel
from test_live_session import RUNS, work

import lab
from lab.live import figures, style, view
from lab.live.session import Session
from lab.live.show import as_text, bundle, show
from lab.live.svg import left_out, to_svg


@pytest.fixture(scope="module")
def compared():
    return lab.compare(work(), HashModel(), RUNS)


def all_figures(compared):
    static = compared["static"]
    curve = [dict(batch=b, step_ms=30.0 + b, tokens_per_s=b / (30.0 + b)) for b in (1, 2, 4)]
    return [
        figures.timeline(static),
        figures.compare_bars(compared),
        *(figures.latency_cdf(compared, metric, slo=0.5) for metric in ("ttft", "tpot", "itl", "e2e")),
        figures.throughput_over_time(compared),
        figures.batch_composition(static),
        figures.batch_composition(static, unit="rows"),
        figures.decode_curve(curve),
    ]


def test_every_figure_has_a_still_picture_with_alt_text(compared):
    for figure in all_figures(compared):
        data, metadata = bundle(figure, "What it shows, 3 < 4 & so on.", [{"a": 1.5, "b": None}])
        picture = ElementTree.fromstring(data["image/svg+xml"])
        assert picture.get("role") == "img" and picture.get("aria-label") == "What it shows, 3 < 4 & so on."
        assert "nan" not in data["image/svg+xml"] and not left_out(figure.to_plotly_json())
        assert metadata["image/svg+xml"]["alt"] and "1.5" in data["text/plain"]
        assert len(data["image/svg+xml"]) < 120_000


def test_figures_name_clock_and_units(compared):
    for figure in all_figures(compared)[:7]:
        assert "simulated" in figure.to_json()
    assert "TTFT, p95 (s)" in figures.compare_bars(compared).to_json()


def test_timeline_shows_what_the_trace_counts(compared):
    static = compared["static"]
    labels = {trace.name for trace in figures.timeline(static).data}
    assert style.KIND["wasted"].label in labels and style.KIND["padding"].label in labels
    tokens = {trace.name: sum(trace.y) for trace in figures.batch_composition(static).data}
    assert tokens[style.KIND["padding"].label] + tokens[style.KIND["wasted"].label] == static.padded_tokens


def test_report_timeline_is_the_figure(compared):
    assert compared["static"].timeline().data


def test_alt_text_and_table_given_by_hand_win(compared):
    figure = figures.timeline(compared["static"])
    data, metadata = bundle(figure, "Said by hand.", "a table")
    assert metadata["image/svg+xml"]["alt"] == "Said by hand." and data["text/plain"].endswith("a table")
    assert "Half of them wait" in bundle(figure)[0]["text/plain"]


def test_show_prints_the_table_where_there_is_no_notebook(compared, capsys):
    show(figures.timeline(compared["static"]), alt="Rows of requests.", table=[{"run": "static", "steps": 3}])
    assert "Rows of requests." in capsys.readouterr().out
    assert as_text([{"a": 1, "b": 2.0}, {"a": 10}]) == " a  b\n 1  2\n10  –"


def test_numpy_arrays_are_drawn_too():
    go, numpy = pytest.importorskip("plotly.graph_objects"), pytest.importorskip("numpy")
    figure = go.Figure(go.Scatter(x=numpy.arange(3), y=numpy.array([1.0, 4.0, 9.0]), mode="lines+markers"))
    assert to_svg(figure.to_plotly_json(), "x").count("<circle") == 3


def test_colours_are_those_that_everybody_tells_apart():
    assert len({kind.color for kind in style.KINDS if not kind.hatched}) >= 4
    assert len(set(style.POLICY_COLORS)) == len(style.POLICY_COLORS)


@pytest.mark.parametrize(("forced", "expected"), [("plain", "plain"), ("widget", "widget"), ("", "plain")])
def test_the_view_is_chosen(monkeypatch, forced, expected):
    monkeypatch.setenv("LAB_LIVE", forced)
    assert view.choose() == expected  # without a kernel: plain


def test_the_plain_view_has_table_picture_and_hint(monkeypatch):
    monkeypatch.setenv("LAB_LIVE", "plain")
    assert Session(work(), HashModel(), RUNS, name="plain").stop() is None
    session = Session(work(), HashModel(), RUNS, name="plain", speed=1e9, slo={"ttft": 1, "itl": 0.02})
    plain = session.dashboard()
    assert "session.start()" in plain.bundle()["text/html"]
    session.start()
    assert session.wait(30)
    still = session.stop()
    data = plain.bundle()
    # a lane and a block map per policy, and two distributions; the text says what they show
    assert data["text/html"].count("<svg") == 6 == data["text/html"].count('role="img"')
    for svg in data["text/html"].split("<svg")[1:]:
        ElementTree.fromstring("<svg" + svg.split("</svg>")[0] + "</svg>")
    assert "blocks of 16 tokens after step" in data["text/plain"] and "of 12" in data["text/plain"]
    assert "within the TTFT limit of 1 s" in data["text/plain"] and "took longest" in data["text/plain"]
    assert repr(still) == data["text/plain"] and still._repr_mimebundle_()["text/html"].count("<svg") == 6
    assert "12" in data["text/plain"] and "finished" in data["text/plain"]


def test_the_widget_has_a_fixed_name_and_needs_no_kernel_to_be_made(monkeypatch):
    monkeypatch.setenv("LAB_LIVE", "widget")
    session = Session(work(), HashModel(), RUNS, name="widget", speed=1e9)
    widget = session.dashboard()
    assert repr(widget) == repr(session.dashboard()) and "0x" not in repr(widget)
    assert [run["name"] for run in widget.config["runs"]] == list(RUNS)
    widget._hear(widget, {"command": "set", "name": "max_batch", "value": 3, "id": 1}, [])
    assert session.controls.max_batch.value == 3
    widget._hear(widget, {"command": "set", "name": "max_batch", "value": 0, "id": 2}, [])
    assert "at least 1" in session.news.said
    widget._hear(widget, {"command": "start", "id": 3}, [])
    assert session.wait(30)
    session.stop()


def test_the_widget_answers_questions_about_the_past(monkeypatch):
    monkeypatch.setenv("LAB_LIVE", "widget")
    session = Session(work(), HashModel(), RUNS, name="questions", speed=1e9)
    widget, said = session.dashboard(), []
    monkeypatch.setattr(widget, "send", said.append)
    widget._hear(widget, {"command": "past", "lane": 0, "index": 3, "id": 1}, [])
    widget._hear(widget, {"command": "why", "lane": 0, "request": 3, "id": 1}, [])
    assert session.news.said == "" and not said  # nothing has begun: a question that comes too early has no answer
    session.start()
    assert session.wait(30)
    session.stop()
    said.clear()
    widget._hear(widget, {"command": "past", "lane": 1, "index": 3, "id": 2}, [])
    widget._hear(widget, {"command": "why", "lane": 1, "request": 5, "id": 3}, [])
    widget._hear(widget, {"command": "why", "lane": 1, "request": 999, "id": 4}, [])
    past, why = said
    assert (past["kind"], past["lane"], past["index"], past["run"]) == ("past", 1, 3, 1)
    assert {step["index"] for step in past["steps"]} >= {2, 3, 4} and past["blocks"]["step"] <= 3
    assert (why["kind"], why["request"]) == ("why", 5)
    assert why["total"] == pytest.approx(session.report("continuous").times[5].e2e)
