"""Latencies as distributions: what share of requests (of gaps) took at most so long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lab.live import style
from lab.live.figures.base import Runs, clock_of, finish, line, reports_of, said
from lab.live.names import IN_LEGEND, labels, spelled
from lab.metrics import Report, percentile

LATENCIES: dict[str, tuple[str, Any]] = {
    "ttft": ("time to first token", lambda times: [times.ttft]),
    "tpot": ("time per output token", lambda times: [] if times.tpot is None else [times.tpot]),
    "itl": ("inter-token latency", lambda times: times.gaps),
    "e2e": ("end-to-end latency", lambda times: [times.e2e]),
}
MOST_POINTS = 400  # of a curve; more are thinned evenly, keeping both ends


def latency_cdf(runs: Runs, metric: str = "ttft", slo: float | None = None, title: str | None = None) -> go.Figure:
    """Share of requests (of gaps, for "itl") that took at most so long, with an SLO line if given."""
    reports = reports_of(runs)
    slos = {metric: slo if slo is not None else _common_slo(reports, metric)}
    return _draw(reports, [metric], slos, title or LATENCIES[metric][0].capitalize())


def latencies(runs: Runs, slo: Mapping[str, float] | None = None, title: str | None = None) -> go.Figure:
    """All four latencies side by side; `slo` (seconds by name) defaults to the limits the runs were judged by."""
    reports = reports_of(runs)
    slos = {name: (slo or {}).get(name) or _common_slo(reports, name) for name in LATENCIES}
    return _draw(reports, list(LATENCIES), slos, title or "How long did it take?")


def values_of(report: Report, metric: str) -> list[float]:
    """All values of a latency (s) in a run, sorted; of requests that ran to their end."""
    return sorted(value for times in report.times.values() if times.done for value in LATENCIES[metric][1](times))


def _common_slo(reports: Mapping[str, Report], metric: str) -> float | None:
    limits = {report.slo.get(metric) for report in reports.values()}
    return limits.pop() if len(limits) == 1 else None


def _draw(reports: dict[str, Report], metrics: Sequence[str], slos: Mapping[str, Any], title: str) -> go.Figure:
    clock, many = clock_of(reports.values()), len(metrics) > 1
    rows, columns = (2, 2) if many else (1, 1)
    heads = [f"{LATENCIES[m][0]} (s, {clock})" for m in metrics] if many else None
    figure = make_subplots(rows, columns, subplot_titles=heads, vertical_spacing=0.19, horizontal_spacing=0.09)
    table: list[dict[str, Any]] = []
    short = labels(reports, IN_LEGEND)
    for place, metric in enumerate(metrics):
        cell = {"row": place // columns + 1, "col": place % columns + 1}
        for index, (name, report) in enumerate(reports.items()):
            values = values_of(report, metric)
            _curve(figure, metric, (name, short[index]), values, index, place == 0, cell)
            table.append(_row(name, metric, values, slos[metric]))
        if slos[metric] is not None:
            figure.add_vline(x=slos[metric], line={"color": style.INK, "dash": "dash", "width": 1.5}, **cell)
            _slo_note(figure, slos[metric], max(values_of(r, metric)[-1:] or [0.0] for r in reports.values())[0], cell)
        if not many:
            figure.update_xaxes(title=f"{LATENCIES[metric][0]} (s, {clock})", **cell)
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(range=[0, 103], tickvals=[0, 25, 50, 75, 100])
    figure.update_yaxes(title="share (%)", col=1)
    what = "gaps between tokens" if metrics == ["itl"] else "requests"
    alt = f"Share of {what} by latency ({clock}). " + _sentences(table, metrics)
    return finish(figure, title, alt, table, 560 if many else 340)


def _slo_note(figure: go.Figure, slo: float, longest: float, cell: dict[str, int]) -> None:
    """Beside the SLO's line, on the side where the plot has room."""
    side = ("right", -4) if slo > 0.7 * longest else ("left", 4)
    note = {"text": f"SLO {slo:g} s", "x": slo, "y": 8, "xanchor": side[0], "xshift": side[1]}
    figure.add_annotation(showarrow=False, **note, **cell)


def _curve(
    figure: go.Figure, metric: str, names: tuple[str, str], values: list[float], index: int, first: bool, cell: dict
) -> None:
    what = "gaps" if metric == "itl" else "requests"
    kept = _thin(len(values))
    figure.add_scatter(
        x=[values[0] if values else 0.0, *(values[i] for i in kept)],
        y=[0.0, *(100 * (i + 1) / len(values) for i in kept)],
        mode="lines",
        name=names[1],
        legendgroup=names[1],
        showlegend=first,
        line={"shape": "hv", **line(index)},
        hovertemplate=f"{spelled(names[0])}<br>%{{y:.0f}} % of {what}<br>took %{{x:.3g}} s or less<extra></extra>",
        **cell,
    )


def _thin(count: int) -> list[int]:
    if count <= MOST_POINTS:
        return list(range(count))
    return sorted({round(i * (count - 1) / (MOST_POINTS - 1)) for i in range(MOST_POINTS)})


def _row(name: str, metric: str, values: list[float], slo: float | None) -> dict[str, Any]:
    quantiles = {f"p{100 * q:.0f} (s)": percentile(values, q) if values else None for q in (0.5, 0.95, 0.99)}
    row = {"run": name, "latency": metric.upper() if metric != "e2e" else metric, "values": len(values), **quantiles}
    if slo is not None:
        within = sum(value <= slo for value in values)
        row |= {"SLO (s)": slo, "within (%)": 100 * within / len(values) if values else None}
    return row


def _sentences(table: list[dict[str, Any]], metrics: Sequence[str]) -> str:
    count = len(table) // len(metrics)
    parts = []
    for place, metric in enumerate(metrics):
        rows = table[place * count : (place + 1) * count]
        numbers = ", ".join(f"{row['run']} {_two(row)}" for row in rows)
        parts.append(f"{LATENCIES[metric][0].capitalize()}, median and p95: {numbers}.")
    return " ".join(parts)


def _two(row: dict[str, Any]) -> str:
    return f"{said(row['p50 (s)'])} and {said(row['p95 (s)'], 's')}" if row["values"] else "has 0 values"
