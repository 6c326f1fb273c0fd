"""Figures: the trace's numbers, alt text, table and still picture for each, and nothing lies over anything else."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from math import log10
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import test_stretches as stretches
from oracles import HashModel
from test_live_session import work

import lab
from lab.errors import BadPolicy
from lab.live import figures, style
from lab.live.figures.base import TITLE_PX, alt_of, groups, marked
from lab.live.figures.loads import by_policy
from lab.live.legend import entries, rows_of
from lab.live.monitor import Reading
from lab.live.names import counted, labels, plain
from lab.live.show import bundle
from lab.live.svg import left_out, to_svg
from lab.metrics import Report, percentile
from lab.peaks import Peaks
from lab.trace import RunTrace
from lab.workload import fixed_workload

SLO = {"ttft": 0.5, "tpot": 0.02, "e2e": 1.0}
OPTIONS = {
    "static:4": dict(batching="static:4"),
    "continuous:4 with a small pool": dict(batching="continuous:4", blocks=14, block_size=8),
    "continuous:8": dict(batching="continuous:8", prefix_cache="radix"),
}
PEAKS = Peaks(70e9, 14e9, "measured by hand")


def priced(report: Report) -> Report:
    """The same run, every step having computed 10 GFLOP per token and moved 4 GB."""
    trace = RunTrace(meta=dict(report.trace.meta), requests=report.trace.requests)
    for step in report.trace:
        step.flops, step.bytes = 10e9 * step.computed, 4e9
        trace.append(step)
    return Report.from_trace(trace, report.slo)


@pytest.fixture(scope="module")
def runs():
    return {name: lab.run(work(), HashModel(), slo=SLO, **options) for name, options in OPTIONS.items()}


@pytest.fixture(scope="module")
def sweep():
    names = ("static:4", "continuous:8")
    return {
        rate: {name: lab.run(work(10, 1 / rate), HashModel(), slo=SLO, **OPTIONS[name]) for name in names}
        for rate in (5, 20, 40)
    }


@pytest.fixture(scope="module")
def log():
    one = Reading("process", 0.0, "%", "this kernel's share of 2 cores (psutil)")
    two = Reading("gpu0_power", 0.0, "W", "power, GPU (NVML)")
    series = {"process": (one, [0.1, 0.2], [10.0, 30.0]), "gpu0_power": (two, [0.1, 0.2], [100.0, 300.0])}
    return SimpleNamespace(series=lambda: series, notes=["MFU is not shown: nothing ran."])


@pytest.fixture(scope="module")
def every(runs, sweep, log):
    one = runs["continuous:4 with a small pool"]
    return {
        "timeline": figures.timeline(one),
        "step_composition": figures.step_composition(runs["static:4"]),
        "step_rows": figures.step_composition(runs["static:4"], unit="rows"),
        "kv_occupancy": figures.kv_occupancy(runs["continuous:8"]),
        "roofline": figures.roofline(priced(one), PEAKS),
        "rooflines": figures.roofline({name: priced(report) for name, report in runs.items()}, PEAKS),
        "efficiency": figures.efficiency(priced(one), PEAKS),
        "utilisation": figures.utilisation(log),
        "comparison": figures.comparison(runs),
        "latency_cdf": figures.latency_cdf(runs, "e2e"),
        "latencies": figures.latencies(runs),
        "throughput_over_time": figures.throughput_over_time(runs),
        "padding_waste": figures.padding_waste(runs),
        "frontier": figures.frontier(sweep),
        "goodput": figures.goodput(sweep),
    }


NAMES = (
    "timeline step_composition step_rows kv_occupancy efficiency roofline rooflines utilisation comparison latency_cdf "
    "latencies throughput_over_time padding_waste frontier goodput"
).split()


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_brings_alt_text_table_and_picture(every, name):
    figure = every[name]
    alt, table = alt_of(figure)
    assert re.search(r"\d", alt) and alt.endswith(".") and len(table) >= 1 and figure.layout.title.text
    data, metadata = bundle(figure)
    picture = ElementTree.fromstring(data["image/svg+xml"])
    assert picture.get("aria-label") == alt == metadata["image/svg+xml"]["alt"] and picture.get("role") == "img"
    assert not left_out(figure.to_plotly_json()) and "nan" not in data["image/svg+xml"]
    assert alt in data["text/plain"] and all(str(key) in data["text/plain"] for key in table[0])
    spec = data["application/vnd.plotly.v1+json"]
    assert "meta" not in spec["layout"] and alt_of(figure)[0] == alt, "the figure keeps them, its JSON need not"
    assert len(data["image/svg+xml"]) < 90_000


@pytest.mark.parametrize("name", NAMES)
def test_every_hover_speaks_in_words(every, name):
    for trace in every[name].data:
        if trace.hoverinfo == "skip":
            continue
        text = trace.hovertemplate or (trace.hovertext and trace.hovertext[0])
        assert text and re.search(r"[a-z]{3}", re.sub(r"%\{.*?\}|<.*?>", "", text)), trace.name


@pytest.mark.parametrize("name", NAMES)
def test_colours_work_on_any_background(every, name):
    figure = every[name]
    assert figure.layout.template.layout.paper_bgcolor == "rgba(0,0,0,0)"
    text = figure.to_json() + bundle(figure)[0]["image/svg+xml"]
    assert not re.search(r'"(#000000|#ffffff|black|white)"', text, re.I), "one of these is the page's own colour"


@pytest.mark.parametrize("name", NAMES)
def test_title_legend_and_plots_lie_below_one_another(every, name):
    layout = every[name].layout
    lines = rows_of(entries(every[name].to_plotly_json()), 760)
    assert layout.title.yref == layout.legend.yref == "container"
    assert layout.legend.y == pytest.approx(1 - TITLE_PX / layout.height)
    heads = [note for note in layout.annotations if note.yref == "paper" and note.y >= 0.999]
    assert layout.margin.t >= TITLE_PX + 21 * lines + (18 if heads else 0)


def test_a_figure_made_elsewhere_gets_room_too():
    go = pytest.importorskip("plotly.graph_objects")
    figure = go.Figure()
    for index in range(8):
        figure.add_scatter(x=[0, 1], y=[0, index], name=f"a policy with a long name, number {index}")
    figure.update_layout(title="Title", legend={"y": 1.1}, margin={"t": 20})
    spec = bundle(figure, alt="Lines.")[0]["application/vnd.plotly.v1+json"]["layout"]
    assert spec["legend"]["yref"] == "container" and spec["margin"]["t"] >= TITLE_PX + 21 * 4
    assert figure.layout.margin.t == 20, "the figure itself is left as it is"
    with pytest.raises(ValueError, match="alt text"):
        bundle(figure)


LONG = ("continuous batching with " + "a very long name " * 9)[:160]
NAMED = {
    f"{LONG} one": OPTIONS["static:4"],
    f"{LONG} two": OPTIONS["continuous:8"],
    "<b>bold</b> & %{x} for $x$": OPTIONS["continuous:8"],
}
OF_SEVERAL = ("comparison", "padding_waste", "roofline", "latency_cdf", "latencies", "throughput_over_time")


@pytest.fixture(scope="module")
def named():
    reports = {name: priced(lab.run(work(), HashModel(), slo=SLO, **options)) for name, options in NAMED.items()}
    made = {name: getattr(figures, name)(reports) for name in OF_SEVERAL}
    sweep = {rate: reports for rate in (5, 20)}
    return made | {"frontier": figures.frontier(sweep), "goodput": figures.goodput(sweep)}


@pytest.mark.parametrize("name", [*OF_SEVERAL, "frontier", "goodput"])
def test_long_names_and_markup_in_names_fit_and_stay_literal(named, name):
    figure = named[name]
    picture = bundle(figure)[0]["image/svg+xml"]
    check_inside(picture)
    shown = [e.text for e in texts(picture)]
    assert any("<b>bold</b> & %{x}"[:6] in text for text in shown), shown
    assert sum("…" in text for text in shown) >= 2, "both long names are shortened"
    layout = figure.to_plotly_json()["layout"]
    layout.pop("meta"), layout.pop("template")
    drawn = json.dumps([trace.to_plotly_json() for trace in figure.data]) + json.dumps(layout)
    assert "<b>" not in drawn and "%{x} for" not in drawn and "$x$" not in drawn, "plotly would interpret it"
    alt, table = alt_of(figure)
    assert {row["run"] for row in table} == set(NAMED) and all(whole in alt for whole in NAMED), "these have room"
    whole = [text for trace in figure.data for text in (trace.hovertext or (trace.hovertemplate or "",))]
    whole += [note.hovertext or "" for note in figure.layout.annotations]
    assert any(LONG + " one" in text.replace("<br>", " ") for text in whole), "and so has the hover text"


@pytest.mark.parametrize(("name", "room"), [("comparison", 500), ("every metric", 500), ("roofline", 690)])
def test_titles_of_panels_do_not_touch(runs, named, name, room):
    """On the narrowest page (760 pixels), beside the longest labels that the vertical axis may have."""
    reports = {"a" * 60: priced(runs["static:4"]), "b" * 60: priced(runs["continuous:8"])}
    made = {
        "comparison": lambda: named["comparison"],
        "every metric": lambda: figures.comparison(reports, list(figures.METRICS)),
        "roofline": lambda: figures.roofline(reports, PEAKS),
    }
    heads = [note for note in made[name]().layout.annotations if note.xanchor == "center"]
    rows: dict[float, list] = {}
    for note in heads:
        assert note.font.size == 13
        half = 7 * max(len(plain(part)) for part in note.text.split("<br>")) / 2
        rows.setdefault(round(note.y, 3), []).append((note.x * room - half, note.x * room + half))
    for row in rows.values():
        assert all(left[1] <= right[0] for left, right in pairwise(sorted(row))), row
    assert len(heads) == {"comparison": 4, "every metric": len(figures.METRICS), "roofline": 2}[name]


def test_names_that_are_cut_alike_are_numbered():
    names = ["x" * 30 + letter + "y" * 30 for letter in "abc"] + ["short", "short <i>"]
    short = labels(names, 20)
    assert len(set(short)) == 5 and [text[0] for text in short[:3]] == ["1", "2", "3"]
    assert short[3:] == ["short", "short &lt;i&gt;"] and all(len(plain(text)) <= 20 for text in short)
    assert plain("a<br><b>b</b> &amp;lt; <sub>2</sub>") == "a b &lt; 2", "entities are read once"
    assert [counted(n, "policy", "policies") for n in (0, 1, 2)] == ["0 policies", "1 policy", "2 policies"]


def test_lines_of_many_policies_never_repeat():
    looks = [(look["line"]["color"], look["line"]["dash"]) for look in map(marked, range(60))]
    assert len(set(looks)) == 60 and looks[:2] == [(style.PURPLE, "solid"), (style.GREEN, "solid")]
    assert len({(look["marker"]["color"], look["marker"]["symbol"]) for look in map(marked, range(36))}) == 36
    go = pytest.importorskip("plotly.graph_objects")
    figure = go.Figure([go.Scatter(x=[0, 1], y=[0, i], line=marked(i)["line"], name=f"run {i}") for i in range(60)])
    lines = re.findall(r'<path d="M[^Z"]*" fill="none" stroke="(#\w+)" stroke-width="2.25" (.*?)/>', to_svg(
        figure.to_plotly_json(), "x"
    ))  # fmt: skip
    assert len(lines) == len(set(lines)) == 60, "nor in still pictures"


def test_bars_of_zero_keep_their_label(runs):
    figure = figures.comparison(runs, ["waste"])
    assert list(figure.data[0].text)[1] == "0 ★" and figure.data[0].x[1] == 0
    assert [e.text for e in texts(bundle(figure)[0]["image/svg+xml"])].count("0 ★") == 2


@pytest.fixture(scope="module")
def tiny():
    one = fixed_workload([tuple(range(9))], [1], [0.0])
    return lab.run(one, HashModel(), batching="continuous:4", blocks=20, block_size=8)


def test_one_of_a_thing_is_singular(tiny):
    said = [alt_of(tiny.figure(name))[0] for name in ("timeline", "step_composition", "kv_occupancy", "padding_waste")]
    said += [alt_of(figures.comparison({"a": tiny}))[0], alt_of(figures.roofline(priced(tiny), PEAKS))[0]]
    assert said[0].startswith("1 request over") and said[1] == "1 step computes 9 tokens: 9 of prompts."
    assert said[4].startswith("1 run compared") and "1 step at" in said[5]
    assert not re.search(r"\b1 (?:requests|runs|tokens|steps|blocks)\b", " ".join(said))


def test_blocks_are_counted_while_a_step_runs(tiny):
    """Nine tokens take two blocks of eight, freed when the only step ends; 7 of 16 slots stay empty."""
    figure = figures.kv_occupancy(tiny)
    alt, table = alt_of(figure)
    assert "of 20 blocks requests use at most 2 during a step and 0 after one; on average 44 %" in alt
    assert [row["value"] for row in table[:3]] == [20, tiny.peak_blocks, 0] and tiny.peak_blocks == 2
    assert all(list(trace.x) == [0.0, 0.0109] for trace in figure.data), "a line with one point is not seen"


@pytest.fixture(scope="module")
def refusing():
    two = fixed_workload([tuple(range(60))] * 2, [4, 4], [0.0, 0.1])
    return lab.run(two, HashModel(), batching="continuous:4", blocks=2, block_size=8)


def test_a_timeline_of_refusals_says_so(refusing):
    assert list(refusing.refused) == [0, 1] and not len(refusing.trace)
    figure = figures.timeline(refusing)
    alt, _ = alt_of(figure)
    assert "2 of 2 requests refused: request 0 needs 8 blocks, the most this engine can give is 2" in alt
    assert "–" not in alt and "Half" not in alt and "2 of 2 refused" in figure.layout.title.text
    (crosses,) = [trace for trace in figure.data if trace.name == "refused"]
    assert (list(crosses.x), list(crosses.y)) == ([0.0, 0.1], [0, 1]) and "needs 8 blocks" in crosses.hovertext[1]
    picture = bundle(figure)[0]["image/svg+xml"]
    check_inside(picture)
    assert "refused: request 0 needs 8 blocks" in " ".join(e.text for e in texts(picture))
    axis, *reason = [
        float(e.get("y")) for e in texts(picture) if e.text.startswith("time (s") or e.get("font-size") == "11"
    ]
    assert len(reason) == 2 and axis + 12 < reason[0] < reason[1], "the reason stands below the axis, line by line"


@pytest.mark.parametrize("name", ["timeline", "step_composition", "kv_occupancy", "padding_waste", "latency_cdf"])
def test_runs_without_steps_have_a_row_and_a_sentence(refusing, name):
    for report in (refusing, Report.from_trace(RunTrace())):
        figure = report.figure(name)
        alt, table = alt_of(figure)
        assert table and re.search(r"\b0 ", alt + " 0 " * (name == "timeline" and report is refusing))
        assert not re.search(r": [.,]|[–:] *\.$", alt), alt
        check_inside(bundle(figure)[0]["image/svg+xml"])


def test_bars_of_waiting_end_where_requests_are_let_in(runs):
    """The alt text's queueing (Report) and the bars tell the same."""
    for report in runs.values():
        figure, waited = figures.timeline(report), {}
        (queue,) = [trace for trace in figure.data if trace.name == "queue"]
        for place, long in zip(queue.y, queue.x, strict=True):
            waited[place] = waited.get(place, 0.0) + long
        for place, times in enumerate(report.times.values()):
            assert waited.get(place, 0.0) == pytest.approx(times.admitted - times.arrival, abs=2e-5)
        middle = percentile(sorted(times.admitted - times.arrival for times in report.times.values()), 0.5)
        assert report.queueing_s.p50 == pytest.approx(middle)


def test_stretches_are_drawn_as_their_single_steps():
    trace = stretches.drive(stretches.workload(3), True, batching="static:6", blocks=200, block_size=8)
    assert max(entry.repeat for entry in trace.entries()) > 5
    common = {"meta": trace.meta, "requests": trace.requests, "late_events": trace.late_events}
    joined, single = RunTrace(**common), RunTrace(**common)
    for entry in trace.entries():
        entry.bytes = 4.0 * entry.repeat
        joined.append(entry)
        for step in entry.steps():
            single.append(step)
    both = Report.from_trace(joined), Report.from_trace(single)
    for name in ("step_composition", "kv_occupancy", "padding_waste", "throughput_over_time", "roofline"):
        one, two = (report.figure(name) for report in both)
        for left, right in zip(one.data, two.data, strict=True):
            assert left.name == right.name and list(left.x) == pytest.approx(list(right.x), rel=1e-3), name
            assert list(left.y) == pytest.approx(list(right.y), rel=1e-3), (name, left.name)
        assert alt_of(one)[0] == alt_of(two)[0]


def texts(picture: str) -> list[ElementTree.Element]:
    return [e for e in ElementTree.fromstring(picture).iter() if e.tag.endswith("text")]


@pytest.mark.parametrize("name", NAMES)
def test_still_pictures_clip_no_text(every, name):
    check_inside(bundle(every[name])[0]["image/svg+xml"])


def check_inside(data: str) -> None:
    """No text of a picture and no bar leaves it."""
    width, height = (float(side) for side in re.search(r'viewBox="0 0 (\d+) (\d+)"', data).groups())
    for box in re.findall(r'<rect x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"', data):
        left, top, wide, high = map(float, box)
        assert left >= 0 and top >= 0 and left + wide <= width and top + high <= height, box
    for element in texts(data):
        x, y, size = float(element.get("x")), float(element.get("y")), 6.0 * len(element.text or "")
        assert 0 < y < height, element.text
        turned = element.get("transform") is not None
        left = {"start": x, "middle": x - size / 2, "end": x - size}[element.get("text-anchor")]
        assert turned or (left > -4 and left + size < width + 12), (element.text, left, left + size)


def test_long_names_get_a_wider_margin():
    go = pytest.importorskip("plotly.graph_objects")
    bars = go.Figure(go.Bar(orientation="h", y=["a policy whose name is rather long"], x=[1]))
    (label,) = [e for e in texts(to_svg(bars.to_plotly_json(), "x")) if (e.text or "").startswith("a policy")]
    assert float(label.get("x")) > 6 * len(label.text)
    names = [f"continuous:{i} with a long name" for i in range(8)]
    upright = go.Figure(go.Bar(x=names, y=list(range(8))))
    slanted = [e for e in texts(to_svg(upright.to_plotly_json(), "x")) if "rotate(-25" in (e.get("transform") or "")]
    assert [e.text for e in slanted] == names


def test_a_line_at_a_value_widens_its_axis():
    go = pytest.importorskip("plotly.graph_objects")
    figure = go.Figure(go.Scatter(x=[0, 1], y=[0, 1])).add_vline(x=3)
    labels = [float(e.text) for e in texts(to_svg(figure.to_plotly_json(), "x")) if re.fullmatch(r"[\d.]+", e.text)]
    assert max(labels) >= 3


def test_cdf_counts_requests(runs):
    figure = figures.latency_cdf(runs, "ttft")
    for trace, (name, report) in zip(figure.data, runs.items(), strict=True):
        values = sorted(times.ttft for times in report.times.values())
        assert trace.name == name and list(trace.x)[1:] == values and trace.y[-1] == 100
    assert len(figure.layout.shapes) == 1 and figure.layout.shapes[0].x0 == SLO["ttft"]
    _, table = alt_of(figure)
    report = runs["static:4"]
    within = sum(times.ttft <= SLO["ttft"] for times in report.times.values())
    assert table[0]["p95 (s)"] == report.ttft_s.p95 and table[0]["within (%)"] == 100 * within / report.requests
    _, rows = alt_of(figures.latencies(runs, slo={"itl": 0.011}))
    assert [row["latency"] for row in rows if row["run"] == "static:4"] == ["TTFT", "TPOT", "ITL", "e2e"]
    assert [row["SLO (s)"] for row in rows if row["latency"] == "ITL"] == [0.011] * 3


def test_a_timeline_of_few_requests_shows_the_same_bars(runs):
    report = runs["continuous:4 with a small pool"]
    full, short = figures.timeline(report), figures.timeline(report, requests=5)
    assert len(alt_of(short)[1]) == 5 and alt_of(short)[1] == alt_of(full)[1][:5] and "5 of 12" in alt_of(short)[0]
    for trace in short.data:
        whole = next(other for other in full.data if other.name == trace.name)
        bars = [(x, y) for x, y in zip(whole.x, whole.y, strict=True) if y < 5]
        assert list(zip(trace.x, trace.y, strict=True)) == bars


def test_a_long_cdf_is_thinned_and_keeps_its_ends(runs):
    times = {i: SimpleNamespace(done=True, ttft=float(i)) for i in range(5000)}
    report = Report(times=times)
    (trace,) = figures.latency_cdf(report, "ttft").data
    assert len(trace.x) <= 401 and trace.x[-1] == 4999 and trace.y[-1] == 100 and trace.x[1] == 0


def test_composition_sums_to_the_reports_counters(runs):
    report = runs["static:4"]
    figure = figures.step_composition(report)
    sums = {trace.name: sum(trace.y) for trace in figure.data}
    assert sums[style.KIND["padding"].label] + sums[style.KIND["wasted"].label] == report.padded_tokens
    assert sums[style.KIND["prefill"].label] + sums[style.KIND["decode"].label] == report.computed_tokens
    grouped = figures.step_composition(report, bars=10)
    assert len(grouped.data[0].x) <= 10 and "on average" in grouped.data[0].hovertext[0]
    assert alt_of(grouped)[1] == alt_of(figure)[1], "the table does not depend on the drawing"


def test_waste_is_a_share_of_everything_computed(runs):
    figure = figures.padding_waste(runs)
    _, table = alt_of(figure)
    for row, report in zip(table, runs.values(), strict=True):
        assert row["all"] == report.computed_tokens + report.padded_tokens
        assert row["padding"] + row[style.KIND["wasted"].label] == report.padded_tokens
    assert runs["continuous:4 with a small pool"].recomputed_tokens == table[1]["computed again after a preemption"] > 0
    assert [sum(shares) for shares in zip(*(trace.x for trace in figure.data), strict=True)] == pytest.approx([100] * 3)


def test_kv_layers_are_stacked_up_to_the_pool(runs):
    report = runs["continuous:8"]
    figure = figures.kv_occupancy(report)
    layers = {trace.name: trace for trace in figure.data if trace.fill}
    assert list(layers) == ["free", "only in the prefix cache", "used by requests"]
    total = sum((report.trace[0].free, report.trace[0].used, report.trace[0].cached))
    assert set(layers["free"].y) == {total}
    assert list(layers["used by requests"].y) == [step.used for step in report.trace]
    cached = layers["only in the prefix cache"]
    assert list(cached.customdata) == [step.cached for step in report.trace] and max(cached.customdata) > 0
    assert alt_of(figure)[1][0] == {"what": "blocks in the pool", "value": total}


def test_a_pool_that_is_nearly_empty_is_shown_in_part(runs):
    figure = figures.kv_occupancy(lab.run(work(), HashModel(), batching="continuous:4", blocks=5000))
    free, used, _ = figure.data
    assert "of 5,000" in figure.layout.yaxis.title.text and max(used.y) * 2 == max(free.y) < 5000
    assert max(free.customdata) > 4900, "the hover says how many are free"


def test_log_axes_have_short_labels():
    go = pytest.importorskip("plotly.graph_objects")
    figure = go.Figure(go.Scatter(x=[1, 2], y=[0.1, 1e9])).update_yaxes(type="log")
    labels = [e.text for e in texts(to_svg(figure.to_plotly_json(), "x"))]
    assert {"0.1", "1000", "10k", "1M", "1G"} <= set(labels) and "1e+06" not in labels


def test_long_runs_are_drawn_in_groups():
    assert groups(5, 10) == [range(i, i + 1) for i in range(5)]
    assert [len(group) for group in groups(2500, 1000)] == [3] * 833 + [1]
    assert groups(0) == []


def test_roofline_puts_steps_where_they_belong(runs):
    report = priced(runs["continuous:4 with a small pool"])
    figure = figures.roofline(report, PEAKS)
    roof, *kinds = figure.data
    assert roof.x[1] == PEAKS.ridge == 5.0 and roof.y[1] == roof.y[2] == 70.0
    assert roof.y[0] == pytest.approx(roof.x[0] * 14.0)
    assert sum(len(trace.x) for trace in kinds) == report.steps
    step = next(step for step in report.trace if step.computed == 3)
    rate = step.flops / (step.end - step.start) / 1e9
    points = [(x, y) for trace in kinds for x, y in zip(trace.x, trace.y, strict=True)]
    assert any(x == 7.5 and y == pytest.approx(rate, rel=1e-3) for x, y in points), "30 GFLOP for 4 GB"
    low, high = figure.layout.xaxis.range
    assert all(low < log10(x) < high for x, _ in points)
    _, table = alt_of(figure)
    assert sum(row["steps"] for row in table) == report.steps and "measured by hand" in alt_of(figure)[0]
    assert {row["steps that compute"] for row in table} >= {"only output tokens (decode)", "both in one step"}


def test_roofline_finds_its_peaks(runs, monkeypatch):
    report = priced(runs["static:4"])
    assert "limits unknown" in figures.roofline(report).to_json(), "a simulated run is not held against this computer"
    report.trace.meta |= {"peak_flops": 1e12, "peak_bytes_per_s": 1e11, "peak_source": "a data sheet"}
    assert "a data sheet" in figures.roofline(report).to_json()
    with pytest.raises(BadPolicy, match="no step says"):
        figures.roofline(runs["static:4"])


def test_efficiency_adds_up_to_the_whole_run(runs):
    report = priced(runs["static:4"])
    figure = figures.efficiency(report, PEAKS)
    _, (busy, mbu, mfu) = alt_of(figure)
    end = report.trace[-1].end
    assert mfu["mean (%)"] == pytest.approx(100 * 10e9 * report.computed_tokens / end / PEAKS.flops)
    assert mbu["mean (%)"] == pytest.approx(100 * 4e9 * report.steps / end / PEAKS.bytes_per_s)
    steps = sum(step.end - step.start for step in report.trace)
    assert busy["mean (%)"] == pytest.approx(100 * steps / end) and busy["most in a window (%)"] <= 100.0001
    assert "modelled" in mfu["source"] and "measured by hand" in mfu["source"]
    with pytest.raises(BadPolicy, match="no peak"):
        figures.efficiency(report)
    with pytest.raises(BadPolicy, match="no step"):
        figures.efficiency(runs["static:4"], PEAKS)


def test_sweeps_come_in_two_ways(sweep):
    turned = {name: {rate: runs[name] for rate, runs in sweep.items()} for name in ("static:4", "continuous:8")}
    assert by_policy(sweep) == by_policy(turned)
    as_json = {rate: {name: report.to_dict() for name, report in runs.items()} for rate, runs in sweep.items()}
    assert alt_of(figures.frontier(as_json)) == alt_of(figures.frontier(sweep))
    assert alt_of(figures.goodput(as_json)) == alt_of(figures.goodput(sweep))
    for bad in ({}, {"a": {"b": 1}}):
        with pytest.raises(BadPolicy, match="sweep"):
            by_policy(bad)


def test_frontier_and_goodput_show_the_reports_numbers(sweep):
    figure = figures.frontier(sweep, "ttft_s.p50")
    assert list(figure.data[0].x) == [runs["static:4"].output_tokens_per_s for runs in sweep.values()]
    assert list(figure.data[0].y) == [runs["static:4"].ttft_s.p50 for runs in sweep.values()]
    with pytest.raises(BadPolicy, match=r"e2e_s\.p95"):
        figures.frontier(sweep, "ttft")
    good = figures.goodput(sweep)
    assert good.data[0].name == "all in time" and list(good.data[0].y) == [0, 40]
    assert list(good.data[2].y) == [runs["continuous:8"].goodput_rps for runs in sweep.values()]
    row = alt_of(good)[1][0]
    report = sweep[5]["static:4"]
    met = sum(times.meets(SLO) for times in report.times.values())
    assert row["in time (%)"] == pytest.approx(100 * met / report.requests)


def test_goodput_needs_an_slo(runs):
    with pytest.raises(BadPolicy, match="slo="):
        figures.goodput({1: {"a": lab.run(work(2), HashModel())}})


def test_comparison_marks_the_best(runs):
    figure = figures.comparison(runs, ["output_tokens_per_s", "ttft_p50", "mean_batch", "mfu"])
    speed, ttft, batch, mfu = figure.data
    assert list(speed.x) == [report.output_tokens_per_s for report in runs.values()]
    assert [("★" in text) for text in speed.text] == [value == max(speed.x) for value in speed.x]
    assert [("★" in text) for text in ttft.text] == [value == min(ttft.x) for value in ttft.x]
    assert not any("★" in text for text in batch.text), "neither large nor small batches are better in themselves"
    assert list(mfu.text) == ["–"] * 3 and "not known" in mfu.hovertext[0]
    with pytest.raises(BadPolicy, match="no metric speed"):
        figures.comparison(runs, ["speed"])


def test_utilisation_names_sources_and_units(log):
    figure = figures.utilisation(log)
    assert figure.layout.yaxis.title.text == "share (%)" and figure.layout.yaxis2.title.text == "power (W)"
    alt, table = alt_of(figure)
    assert [(row["series"], row["mean"], row["most"], row["unit"]) for row in table] == [
        ("process", 20.0, 30.0, "%"),
        ("gpu0_power", 200.0, 300.0, "W"),
    ]
    assert "nothing ran" in alt and "psutil" in table[0]["source"]
    with pytest.raises(BadPolicy, match="no NVML here"):
        figures.utilisation(SimpleNamespace(series=dict, notes=["no NVML here"]))


def test_legends_leave_out_what_is_not_drawn():
    data = [{"name": name, "x": x, "y": x} for name, x in (("a", [1]), ("b", [2]), ("empty", []), ("none", None))]
    data += [{"name": "hidden", "x": [1], "visible": "legendonly"}, {"name": "unsaid", "x": [1], "showlegend": False}]
    assert [name for name, *_ in entries({"data": data})] == ["a", "b"]
    assert entries({"data": data[:1]}) == [], "one line needs no legend"


def test_legend_lines():
    short = [("a", {}, 0), ("b", {}, 1)]
    assert (rows_of([], 760), rows_of(short, 760), rows_of(short, 80)) == (0, 1, 2)
    assert rows_of([("x" * 60, {}, i) for i in range(3)], 760) == 3
