"""Requests × time: what each request of a run was doing."""

from __future__ import annotations

from math import inf
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from lab.live import style
from lab.live.feed import Feed
from lab.live.figures.base import clock_of, finish, kind_marker, nothing, said
from lab.live.names import LINE, counted, literal, short
from lab.metrics import Report

MANY = 10**9
MOST_BARS = 6000


def timeline(report: Report, title: str | None = None, requests: int = 64) -> go.Figure:
    """What each of the first `requests` requests was doing at every moment, and when its first token came."""
    rows = list(replay(report, _end(report, requests)).rows.values())[:requests]
    bars = sum(len(row.bars) for row in rows)
    sliver = 0.0 if bars <= MOST_BARS else report.trace[-1].end / 1500
    traces: dict[str, dict[str, list]] = {}
    for place, row in enumerate(rows):
        for bar in row.bars:
            if bar.end - bar.start > sliver:
                _add_bar(traces, place, row, bar)
    figure = go.Figure()
    for kind in style.KINDS:
        if kind.name in traces:
            look = {"name": kind.label, "marker": kind_marker(kind), "hoverinfo": "text"}
            figure.add_bar(orientation="h", **look, **traces[kind.name])
    first = [(row.first, place, row) for place, row in enumerate(rows) if row.first is not None]
    figure.add_scatter(
        x=[time for time, *_ in first],
        y=[place for _, place, _ in first],
        mode="markers",
        name="first token delivered",
        marker={"color": style.INK, "size": 6},
        hovertext=[_first_words(row) for *_, row in first],
        hoverinfo="text",
    )
    refused = _refusals(figure, report, rows)
    if not rows:
        nothing(figure, "no request arrived")
    clock = clock_of([report])
    ids = [str(row.info.id) for row in rows]
    step = max(1, len(rows) // 20)
    figure.update_xaxes(title=f"time (s, {clock})", rangemode="tozero")
    figure.update_yaxes(title="request", range=[max(1, len(rows)) - 0.5, -0.5], showgrid=False)
    figure.update_yaxes(tickvals=list(range(0, len(rows), step)), ticktext=ids[::step])
    name = literal(report.axes.get("batching", "run"))
    table = [_row(report, row) for row in rows] or [{"request": "none arrived"}]
    below = 14 * len(refused) + 26 if refused else 0
    some = f", {len(report.refused)} of {report.requests} refused" if refused else ""
    title = title or f"{name}: requests over time ({clock}{some})"
    height = 110 + max(160, 13 * len(rows)) + below
    layout = {"barmode": "overlay", "bargap": 0} | ({"margin": {"b": 58 + below}} if refused else {})
    return finish(figure, title, _alt(report, len(rows)), table, height, **layout)


def _refusals(figure: go.Figure, report: Report, rows: list[Any]) -> list[str]:
    """Mark refused requests where they arrived, and say below the plot why; returns the lines, none without any."""
    some = [(place, row) for place, row in enumerate(rows) if row.info.id in report.refused]
    if some:
        words = [f"request {row.info.id}: refused" + _because(report.refused[row.info.id]) for _, row in some]
        figure.add_scatter(
            x=[row.info.arrival_time for _, row in some],
            y=[place for place, _ in some],
            mode="markers",
            name="refused",
            cliponaxis=False,
            marker={"color": style.VERMILLION, "size": 9, "symbol": "x"},
            hovertext=["<br>".join(map(literal, wrap(text, LINE))) for text in words],
            hoverinfo="text",
        )
    lines = list(map(literal, wrap(_refused(report), 110))) if report.refused else []
    if lines:
        note = {"x": 0, "y": 0, "yshift": -52, "xanchor": "left", "yanchor": "top", "align": "left"}
        text = "<br>".join(lines)
        figure.add_annotation(text=text, xref="paper", yref="paper", showarrow=False, font={"size": 11}, **note)
    return lines


def _refused(report: Report) -> str:
    first = short(next(iter(report.refused.values())), 300)
    return f"{len(report.refused)} of {counted(report.requests, 'request')} refused" + _because(first)


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def replay(report: Report, until: float = inf) -> Feed:
    """The report's trace as the dashboard would have seen it, up to the first step that begins after `until`."""
    feed = Feed(report.axes.get("batching", "run"), kept=MANY)
    batch = report.axes.get("delivery") == "batch"
    for step in report.trace:
        if step.start > until:
            return feed
        feed.take(step, report.trace.requests, batch)
    feed.take_events(report.trace.late_events, report.trace.requests)
    return feed


def _end(report: Report, requests: int) -> float:
    """When the first `requests` requests have ended; what comes later need not be replayed."""
    shown = list(report.times.values())[:requests]
    return max((times.arrival + times.e2e if times.done else inf for times in shown), default=0.0)


def _first_words(row: Any) -> str:
    wait = row.first - row.info.arrival_time
    return f"request {row.info.id}: first token delivered at {row.first:.2f} s,<br>{wait:.2f} s after it arrived"


WORDS = {
    "queue": "waits to be let in",
    "prefill": "its prompt is computed",
    "decode": "its output is computed, one token a step",
    "wasted": "it has ended, but its row is still computed until the batch ends",
    "preempted": "it was thrown out of memory and waits to come back",
    "held": "it is let in, but these steps go by without it",
    "padding": "padding: computed to fill the rectangle, then thrown away",
}


def _add_bar(traces: dict[str, dict[str, list]], place: int, row: Any, bar: Any) -> None:
    """One bar, or two where padding shares the row with real tokens."""
    kind = style.KINDS[bar.kind]
    thick = 0.26 if kind.thin else 0.86
    share = bar.real / (bar.real + bar.padding) if bar.padding and not kind.hatched else 1.0
    parts = [(kind.name, -thick / 2, thick * share)]
    if share < 1:
        parts.append(("padding", -thick / 2 + thick * share, thick * (1 - share)))
    for name, offset, width in parts:
        columns = traces.setdefault(name, {c: [] for c in ("x", "y", "base", "width", "offset", "hovertext")})
        tokens = bar.padding if name == "padding" else bar.real
        text = f"request {row.info.id}: {WORDS.get(name, style.KIND[name].label)}"
        text += f"<br>{bar.start:.2f}–{bar.end:.2f} s ({bar.end - bar.start:.3g} s)"
        text += f", {counted(tokens, 'token')}" if tokens else ""
        values = (round(bar.end - bar.start, 5), place, round(bar.start, 5), round(width, 3), round(offset, 3), text)
        for column, value in zip(columns, values, strict=True):
            columns[column].append(value)


def _row(report: Report, row: Any) -> dict[str, Any]:
    times = report.times[row.info.id]
    return {
        "request": row.info.id,
        "arrives (s)": round(row.info.arrival_time, 2),
        "prompt tokens": row.info.num_prompt,
        "output tokens": len(times.tokens),
        "first token (s)": None if row.first is None else round(row.first, 2),
        "done (s)": round(times.arrival + times.e2e, 2) if times.done else None,
    }


def _alt(report: Report, shown: int) -> str:
    if not report.requests:
        return "The run has 0 requests: there is nothing to show."
    every = counted(shown, "request") if shown == report.requests else f"{shown} of {report.requests} requests"
    steps = len(report.trace)
    parts = [f"{every} over {report.trace[-1].end:.2f} s." if steps else f"{every} in a run of 0 steps."]
    if report.refused:
        parts.append(_refused(report).rstrip(".") + ".")
    if report.queueing_s.p50 is not None:
        those = "them" if report.finished == report.requests else f"the {report.finished} that finished"
        text = f"Half of {those} wait {said(report.queueing_s.p50, 's')} or longer to be let in; "
        parts.append(text + f"the median first token comes after {said(report.ttft_s.p50, 's')}.")
    if report.padded_tokens:
        wasted = counted(report.padded_tokens, "computed position")
        one = report.padded_tokens == 1
        parts.append(f"{wasted} {'is' if one else 'are'} padding or belong{'s' if one else ''} to finished requests.")
    return " ".join(parts)
