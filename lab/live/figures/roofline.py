"""The roofline of a machine with the steps of runs on it (Williams, Waterman and Patterson, CACM 52(4), 2009).

A step does so many operations per byte it moves (its intensity). At low intensity memory is the limit: a step cannot do
more than bandwidth × intensity; from the ridge on arithmetic is.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log10
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lab.errors import BadPolicy
from lab.live import style
from lab.live.figures.base import Runs, clock_of, finish, groups, reports_of
from lab.live.figures.walk import ends_of, is_decode, kinds_of
from lab.live.names import counted, labels, literal, spelled
from lab.metrics import Report, percentile
from lab.peaks import Peaks, this_machine

#: kind of step -> label, colour, symbol
KINDS = {
    "prefill": ("only prompts (prefill)", style.ORANGE, "square"),
    "decode": ("only output tokens (decode)", style.SKY, "circle"),
    "mixed": ("both in one step", style.PURPLE, "diamond"),
}
MOST_POINTS = 500  # of a kind of step; more are thinned evenly
HEADS_PX = 640  # all titles of panels side by side


class Point(NamedTuple):
    """One step on the roofline."""

    kind: str
    intensity: float  # FLOP per byte
    rate: float  # FLOP/s
    index: int
    requests: int  # that it computed
    tokens: int
    seconds: float


def roofline(runs: Runs, peaks: Peaks | None = None, title: str | None = None) -> go.Figure:
    """Every step's FLOP/s over its FLOP per byte, under the machine's limits; several runs in panels side by side.

    `peaks` defaults to those of the run, then, for a measured one, to those measured on this computer. Raises BadPolicy
    when no step of a run says how much it computed and moved.
    """
    reports = reports_of(runs)
    every = {name: list(points_of(name, report)) for name, report in reports.items()}
    peaks = peaks or next((found for report in reports.values() if (found := peaks_of(report))), None)
    heads = labels(reports, max(8, int(HEADS_PX / len(reports) / 7))) if len(reports) > 1 else None
    figure = make_subplots(1, len(reports), subplot_titles=heads, shared_yaxes=True, horizontal_spacing=0.03)
    for note, whole in zip(figure.layout.annotations, reports, strict=False):
        note.hovertext = spelled(whole)
    low, high = _range([point.intensity for points in every.values() for point in points] + _ridge(peaks))
    rates = [point.rate / 1e9 for points in every.values() for point in points]
    bottom, top = _range(rates + ([peaks.flops / 1e9] if peaks else []))
    seen: set[str] = set()
    for column, points in enumerate(every.values(), 1):
        if peaks is not None:
            _roof(figure, peaks, (max(low, bottom * 1e9 / peaks.bytes_per_s), high), column)
        for kind in KINDS:
            some = [point for point in points if point.kind == kind]
            if some:
                _steps(figure, kind, some, peaks, column, kind not in seen)
                seen.add(kind)
    figure.update_xaxes(title="FLOP per byte moved", type="log", dtick="D2", range=[log10(low), log10(high)])
    figure.update_yaxes(type="log", dtick="D2", range=[log10(bottom), log10(top)])
    figure.update_yaxes(title=f"GFLOP/s ({clock_of(reports.values())})", col=1)
    table = [row for name, points in every.items() for row in _rows(name, points, peaks)]
    name = f" ({labels(reports)[0]})" if len(reports) == 1 else ""
    title = title or f"How near are the steps to what the machine can do?{name}"
    source = (
        f"limits: {literal(peaks.source)}"
        if peaks
        else "limits unknown: python3 -m lab doctor measures this computer's"
    )
    note = {"text": source, "x": 0, "y": 0, "yshift": -58, "xanchor": "left", "yanchor": "top", "font": {"size": 11}}
    figure.add_annotation(xref="paper", yref="paper", showarrow=False, **note)
    return finish(figure, title, _alt(table, peaks), table, 452, margin={"b": 90})


def points_of(name: str, report: Report) -> Iterator[Point]:
    """Steps that say what they computed and moved. Raises BadPolicy when there is none."""
    found = False
    for entry in report.trace.entries():
        if entry.flops <= 0 or entry.bytes <= 0:
            continue
        kinds = [kind for step, times in kinds_of(entry) for kind in [_kind(step, report)] * times]
        requests = len(entry.rows) - entry.carried
        flops, start = entry.flops / entry.repeat, entry.start
        for place, end in enumerate(ends_of(entry)):
            if end > start:
                found = True
                numbers = (entry.index + place, requests, entry.computed, end - start)
                yield Point(kinds[place], entry.flops / entry.bytes, flops / (end - start), *numbers)
            start = end
    if not found:
        raise BadPolicy(f"{name}: no step says how many FLOP and bytes it took, so none can be drawn on a roofline")


def peaks_of(report: Report) -> Peaks | None:
    """Limits a run was judged by; of a measured run without any, what was measured on this computer."""
    return Peaks.of(report.trace.meta) or (this_machine() if report.measured else None)


def _kind(step: Any, report: Report) -> str:
    decodes = prompts = 0
    for row in step.rows:
        if row.num_tokens:
            decode = is_decode(row, report.trace)
            decodes, prompts = decodes + decode, prompts + (not decode)
    return "mixed" if decodes and prompts else "prefill" if prompts else "decode"


def _roof(figure: go.Figure, peaks: Peaks, ends: tuple[float, float], column: int) -> None:
    """Memory's slope up to the ridge, then arithmetic's ceiling."""
    ridge = peaks.ridge
    xs = [ends[0], ridge, ends[1]]
    ys = [min(peaks.flops, x * peaks.bytes_per_s) / 1e9 for x in xs]
    words = [
        f"memory is the limit here: {peaks.bytes_per_s / 1e9:,.1f} GB/s × FLOP per byte",
        f"the ridge, {ridge:.3g} FLOP per byte: from here on arithmetic is the limit",
        f"arithmetic is the limit here: {peaks.flops / 1e9:,.0f} GFLOP/s",
    ]
    figure.add_scatter(
        x=xs,
        y=ys,
        mode="lines+markers",
        name=f"limit: {peaks.flops / 1e9:,.0f} GFLOP/s, {peaks.bytes_per_s / 1e9:,.1f} GB/s",
        legendgroup="limit",
        showlegend=column == 1,
        line={"color": style.INK, "width": 2},
        marker={"size": 1, "color": style.INK},
        hovertext=[f"{text}<br>({spelled(peaks.source)})" for text in words],
        hoverinfo="text",
        row=1,
        col=column,
    )


def _steps(figure: go.Figure, kind: str, points: list[Point], peaks: Peaks | None, column: int, first: bool) -> None:
    label, color, symbol = KINDS[kind]
    shown = [points[group[0]] for group in groups(len(points), MOST_POINTS)]
    figure.add_scatter(
        x=[float(f"{point.intensity:.4g}") for point in shown],
        y=[float(f"{point.rate / 1e9:.4g}") for point in shown],
        mode="markers",
        name=label,
        legendgroup=kind,
        showlegend=first,
        marker={"color": color, "symbol": symbol, "size": 8, "opacity": 0.7, "line": {"width": 0}},
        hovertext=[_words(point, peaks) for point in shown],
        hoverinfo="text",
        row=1,
        col=column,
    )


def _words(point: Point, peaks: Peaks | None) -> str:
    flops = point.rate * point.seconds
    text = f"step {point.index}: {counted(point.requests, 'request')}, {counted(point.tokens, 'token')}<br>"
    text += f"{1000 * point.seconds:.3g} ms for {flops / 1e9:.3g} GFLOP and {flops / point.intensity / 1e6:,.0f} MB"
    if peaks is None:
        return text
    limit = "memory" if point.intensity < peaks.ridge else "arithmetic"
    return f"{text}<br>{100 * _share(point, peaks):.0f} % of what {limit}, the limit here, allows"


def _share(point: Point, peaks: Peaks) -> float:
    return point.rate / min(peaks.flops, point.intensity * peaks.bytes_per_s)


def _ridge(peaks: Peaks | None) -> list[float]:
    return [peaks.ridge] if peaks else []


def _range(values: list[float]) -> tuple[float, float]:
    """Ends of a logarithmic axis with some room; at least a factor of ten."""
    low, high = min(values), max(values)
    middle = (low * high) ** 0.5
    return min(low / 1.6, middle / 3.2), max(high * 1.9, middle * 3.2)


def _rows(name: str, points: list[Point], peaks: Peaks | None) -> Iterator[dict[str, Any]]:
    for kind, (label, *_) in KINDS.items():
        some = [point for point in points if point.kind == kind]
        if some:
            row = {"run": name, "steps that compute": label, "steps": len(some)}
            row |= {"FLOP per byte, median": percentile(sorted(point.intensity for point in some), 0.5)}
            row |= {"GFLOP/s, median": percentile(sorted(point.rate / 1e9 for point in some), 0.5)}
            if peaks:
                row["of the limit, median (%)"] = 100 * percentile(sorted(_share(p, peaks) for p in some), 0.5)
            yield row


def _alt(table: list[dict[str, Any]], peaks: Peaks | None) -> str:
    parts = []
    for row in table:
        text = f"{row['run']}, {row['steps that compute']}: {counted(row['steps'], 'step')} at "
        text += f"{row['FLOP per byte, median']:.3g} FLOP per byte and {row['GFLOP/s, median']:.3g} GFLOP/s (medians)"
        parts.append(text + (f", {row['of the limit, median (%)']:.0f} % of the limit" if peaks else ""))
    limit = (
        f" Limits: {peaks.flops / 1e9:,.0f} GFLOP/s, {peaks.bytes_per_s / 1e9:,.1f} GB/s, {peaks.source}."
        if peaks
        else ""
    )
    return f"Steps on a roofline. {'; '.join(parts)}.{limit}"
