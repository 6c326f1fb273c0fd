"""Figures of runs in one visual language: colours, units and clock names from `style`, legible on light and dark.

Each function returns a plotly Figure; `picture` shows one together with its alt text and its table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lab.live import style
from lab.live.feed import Feed
from lab.metrics import Report
from lab.running import Comparison

MANY = 10**9


def template() -> go.layout.Template:
    """Fonts, colours and grid of every figure; the background is transparent, so that any theme shows through."""
    axis = {"gridcolor": style.GRID, "zerolinecolor": style.GRID, "linecolor": style.GRID, "automargin": True}
    return go.layout.Template(
        layout={
            "font": {"family": style.FONT, "size": 13, "color": style.INK},
            "title": {"font": {"size": 16}, "x": 0, "xref": "paper", "xanchor": "left", "y": 0.97},
            "colorway": list(style.POLICY_COLORS),
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(128,128,128,0.05)",
            "xaxis": axis,
            "yaxis": axis,
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "bgcolor": "rgba(0,0,0,0)"},
            "margin": {"l": 64, "r": 18, "t": 76, "b": 52},
            "annotationdefaults": {"font": {"size": 13}},
            "hoverlabel": {"font": {"family": style.FONT}},
        }
    )


def reports_of(runs: Comparison | Mapping[str, Report] | Report) -> dict[str, Report]:
    """Reports by name, whatever they come in."""
    if isinstance(runs, Report):
        return {runs.axes.get("batching", "run"): runs}
    return dict(getattr(runs, "reports", runs))


def clock_of(reports: Iterable[Report]) -> str:
    """ "measured", "simulated", or both."""
    return ", ".join(sorted({style.clock_name(report.measured) for report in reports}))


def timeline(report: Report, title: str | None = None, requests: int = 64) -> go.Figure:
    """Requests × time: what each of the first `requests` requests was doing, and when its first token came."""
    rows = [row for row in replay(report).rows.values()][:requests]
    traces: dict[str, dict[str, list]] = {}
    for place, row in enumerate(rows):
        for bar in row.bars:
            _add_bar(traces, place, row, bar)
    figure = go.Figure()
    for kind in style.KINDS:
        if kind.name in traces:
            columns = traces[kind.name]
            figure.add_bar(orientation="h", name=kind.label, marker=_marker(kind), **columns)
    first = [(row.first, place) for place, row in enumerate(rows) if row.first is not None]
    figure.add_scatter(
        x=[time for time, _ in first],
        y=[place for _, place in first],
        mode="markers",
        name="first token delivered",
        marker={"color": style.INK, "size": 6},
        hovertemplate="first token delivered at %{x:.2f} s<extra></extra>",
    )
    clock = clock_of([report])
    figure.update_layout(barmode="overlay", bargap=0, height=150 + max(160, 13 * len(rows)))
    figure.update_layout(template=template(), title=title or f"{report.axes.get('batching', '')}: requests over time")
    figure.update_xaxes(title=f"time (s, {clock})", rangemode="tozero")
    figure.update_yaxes(title="request", autorange="reversed", showgrid=False)
    return figure


def replay(report: Report) -> Feed:
    """The report's trace as the dashboard would have seen it."""
    feed = Feed(report.axes.get("batching", "run"), kept=MANY)
    batch = report.axes.get("delivery") == "batch"
    for step in report.trace:
        feed.take(step, report.trace.requests, batch)
    feed.take_events(report.trace.late_events, report.trace.requests)
    return feed


def _marker(kind: style.Kind) -> dict[str, Any]:
    pattern = {"pattern": {"shape": "/", "size": 5, "solidity": 0.35}} if kind.hatched else {}
    return {"color": kind.color, "line": {"width": 0}, **pattern}


def _add_bar(traces: dict[str, dict[str, list]], place: int, row: Any, bar: Any) -> None:
    """One bar, or two where padding shares the row with real tokens."""
    kind = style.KINDS[bar.kind]
    thick = 0.26 if kind.thin else 0.86
    share = bar.real / (bar.real + bar.padding) if bar.padding and not kind.hatched else 1.0
    parts = [(kind.name, -thick / 2, thick * share)]
    if share < 1:
        parts.append(("padding", -thick / 2 + thick * share, thick * (1 - share)))
    for name, offset, width in parts:
        names = ("x", "y", "base", "width", "offset", "hovertext")
        columns = traces.setdefault(name, {column: [] for column in names})
        tokens = bar.padding if name == "padding" else bar.real
        text = f"request {row.info.id}: {style.KIND[name].label}, {bar.start:.2f}–{bar.end:.2f} s"
        values = (
            bar.end - bar.start,
            place,
            bar.start,
            width,
            offset,
            f"{text}, {tokens} tokens" if tokens else text,
        )
        for column, value in zip(names, values, strict=True):
            columns[column].append(value)
        columns["hoverinfo"] = "text"


METRICS: dict[str, tuple[str, str, Any]] = {
    "output_tokens_per_s": ("output tokens", "tokens/s", lambda r: r.output_tokens_per_s),
    "ttft_p50": ("TTFT, median", "s", lambda r: r.ttft_s.p50),
    "ttft_p95": ("TTFT, p95", "s", lambda r: r.ttft_s.p95),
    "tpot_p50": ("TPOT, median", "s", lambda r: r.tpot_s.p50),
    "itl_p95": ("ITL, p95", "s", lambda r: r.itl_s.p95),
    "e2e_p50": ("end to end, median", "s", lambda r: r.e2e_s.p50),
    "goodput_rps": ("goodput", "requests/s", lambda r: r.goodput_rps),
    "waste": ("wasted work", "%", lambda r: 100 * r.padded_tokens / max(1, r.padded_tokens + r.computed_tokens)),
    "mean_batch": ("requests per step", "", lambda r: r.mean_batch),
}


def compare_bars(
    runs: Comparison | Mapping[str, Report],
    metrics: Sequence[str] = ("output_tokens_per_s", "ttft_p50", "ttft_p95", "waste"),
    title: str | None = None,
) -> go.Figure:
    """One small bar chart per metric, each with its own scale that starts at 0."""
    reports = reports_of(runs)
    heads = [f"{METRICS[m][0]}{f' ({METRICS[m][1]})' if METRICS[m][1] else ''}" for m in metrics]
    figure = make_subplots(1, len(metrics), subplot_titles=heads, horizontal_spacing=0.07)
    for column, metric in enumerate(metrics, 1):
        for index, (name, report) in enumerate(reports.items()):
            value = METRICS[metric][2](report)
            figure.add_bar(
                x=[name],
                y=[value or 0],
                name=name,
                legendgroup=name,
                showlegend=False,
                marker={"color": style.policy_color(index)},
                text=[style.number(value)],
                textposition="outside",
                cliponaxis=False,
                row=1,
                col=column,
                hovertemplate=f"{name}: %{{y:.4g}} {METRICS[metric][1]}<extra></extra>",
            )
        top = max([METRICS[metric][2](report) or 0 for report in reports.values()], default=1) or 1
        figure.update_yaxes(range=[0, 1.18 * top], row=1, col=column)
    clock = clock_of(reports.values())
    figure.update_layout(template=template(), height=340, bargap=0.35, barmode="overlay")
    return figure.update_layout(title=title or f"{' and '.join(reports)} ({clock})")


def __getattr__(name: str) -> Any:
    """The figures made of lines live in `curves`; they are found here too."""
    from lab.live import curves

    return getattr(curves, name)
