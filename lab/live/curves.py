"""Figures with lines: latencies as distributions, throughput and queues over time, step composition, batch curve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lab.live import style
from lab.live.figures import clock_of, reports_of, template
from lab.metrics import Report
from lab.running import Comparison

Runs = Comparison | Mapping[str, Report] | Report

LATENCIES: dict[str, tuple[str, Any]] = {
    "ttft": ("time to first token", lambda times: [times.ttft]),
    "tpot": ("time per output token", lambda times: [] if times.tpot is None else [times.tpot]),
    "itl": ("inter-token latency", lambda times: times.gaps),
    "e2e": ("end-to-end latency", lambda times: [times.e2e]),
}


def latency_cdf(runs: Runs, metric: str = "ttft", slo: float | None = None, title: str | None = None) -> go.Figure:
    """Share of requests (of gaps, for "itl") that took at most so long, with an SLO line if given."""
    label, pick = LATENCIES[metric]
    reports = reports_of(runs)
    figure = go.Figure()
    for index, (name, report) in enumerate(reports.items()):
        values = sorted(value for times in report.times.values() if times.done for value in pick(times))
        figure.add_scatter(
            x=[0.0, *values],
            y=[0.0, *(100 * (i + 1) / len(values) for i in range(len(values)))],
            mode="lines",
            name=name,
            line={"shape": "hv", **_line(index)},
            hovertemplate=f"{name}: %{{y:.0f}}% within %{{x:.3f}} s<extra></extra>",
        )
    if slo is not None:
        figure.add_vline(x=slo, line={"color": style.INK, "dash": "dash", "width": 1})
    figure.update_layout(template=template(), height=340, title=title or label.capitalize())
    figure.update_xaxes(title=f"{label} (s, {clock_of(reports.values())})", rangemode="tozero")
    return figure.update_yaxes(title="share (%)", range=[0, 102])


def throughput_over_time(runs: Runs, window: float | None = None, title: str | None = None) -> go.Figure:
    """Output tokens per second in windows of equal length, below it the requests that wait and run."""
    reports = reports_of(runs)
    figure = make_subplots(2, 1, shared_xaxes=True, row_heights=[0.6, 0.4], vertical_spacing=0.08)
    longest = max((report.trace[-1].end for report in reports.values() if len(report.trace)), default=1.0)
    width = window or max(longest / 40, 1e-3)
    for index, (name, report) in enumerate(reports.items()):
        bins = [0.0] * (int(longest / width) + 1)
        steps = list(report.trace)
        for step in steps:
            bins[int(step.end / width)] += step.sampled / width
        times = [(i + 0.5) * width for i in range(len(bins))]
        common = {"legendgroup": name, "mode": "lines"}
        figure.add_scatter(x=times, y=bins, name=name, line=_line(index), fill="tozeroy", row=1, col=1, **common)
        figure.add_scatter(
            x=[step.end for step in steps],
            y=[step.waiting for step in steps],
            name=f"{name}, waiting",
            showlegend=False,
            line={"shape": "hv", **_line(index)},
            row=2,
            col=1,
            **common,
        )
    clock = clock_of(reports.values())
    figure.update_layout(template=template(), height=400, title=title or "Throughput and queue over time")
    figure.update_xaxes(title=f"time (s, {clock})", row=2, col=1)
    figure.update_yaxes(title="tokens/s", rangemode="tozero", row=1, col=1)
    return figure.update_yaxes(title="waiting", rangemode="tozero", row=2, col=1)


def batch_composition(report: Report, title: str | None = None, unit: str = "tokens", bars: int = 240) -> go.Figure:
    """What each step computed: prompt, output, padding, finished requests; in "tokens" or in "rows" (requests).

    More steps than `bars` are averaged in groups.
    """
    names = ("prefill", "decode", "padding", "wasted")
    count = step_rows if unit == "rows" else step_tokens
    steps = [count(step, report) for step in report.trace]
    group = -(-len(steps) // bars)
    figure = go.Figure()
    for place, name in enumerate(names):
        means = [_mean([row[place] for row in steps[i : i + group]]) for i in range(0, len(steps), group or 1)]
        kind = style.KIND[name]
        pattern = {"pattern": {"shape": "/", "size": 5, "solidity": 0.35}} if kind.hatched else {}
        if any(means):
            figure.add_bar(
                x=[i * group for i in range(len(means))],
                y=means,
                name=kind.label,
                marker={"color": kind.color, "line": {"width": 0}, **pattern},
                hovertemplate=f"step %{{x}}: %{{y:.4g}} {unit}, {kind.label}<extra></extra>",
            )
    per = f"{unit} per step" if group <= 1 else f"{unit} per step (mean of {group} steps)"
    figure.update_layout(template=template(), height=340, barmode="stack", bargap=0)
    figure.update_layout(title=title or f"{report.axes.get('batching', '')}: what each step computes")
    figure.update_xaxes(title="step")
    return figure.update_yaxes(title=per, rangemode="tozero")


def step_tokens(step: Any, report: Report) -> tuple[int, int, int, int]:
    """(prompt, output, padding, finished rows) tokens of a step."""
    prefill = decode = padding = wasted = 0
    for row in step.rows:
        if row.num_tokens == 0:
            wasted += row.padding
            continue
        padding += row.padding
        if row.num_tokens == 1 and row.start >= report.trace.requests[row.request].num_prompt:
            decode += 1
        else:
            prefill += row.num_tokens
    return prefill, decode, padding, wasted


def step_rows(step: Any, report: Report) -> tuple[int, int, int, int]:
    """(prompt, output, 0, finished) rows of a step."""
    prompts = sum(row.num_tokens > 0 for row in step.rows)
    decodes = sum(
        row.num_tokens == 1 and row.start >= report.trace.requests[row.request].num_prompt for row in step.rows
    )
    return prompts - decodes, decodes, 0, step.carried


def decode_curve(points: Iterable[Any], title: str | None = None) -> go.Figure:
    """Time of a decode step and tokens per second against batch size, beside what one request at a time would give.

    `points` have batch, step_ms and tokens_per_s, as attributes or keys.
    """
    rows = [(_get(p, "batch"), _get(p, "step_ms"), _get(p, "tokens_per_s")) for p in points]
    batches = [batch for batch, *_ in rows]
    figure = make_subplots(1, 2, subplot_titles=("time of a step (ms)", "output tokens per second"))
    lines = {
        "measured": ([ms for _, ms, _ in rows], [rate for *_, rate in rows], {"color": style.BLUE, "width": 2.5}),
        "one request at a time": (
            [batch / batches[0] * rows[0][1] for batch in batches],
            [rows[0][2]] * len(rows),
            {"color": style.INK, "dash": "dash", "width": 1.5},
        ),
    }
    for name, (times, rates, line) in lines.items():
        for column, values in ((1, times), (2, rates)):
            figure.add_scatter(
                x=batches,
                y=values,
                name=name,
                legendgroup=name,
                showlegend=column == 1,
                mode="lines+markers" if name == "measured" else "lines",
                line=line,
                row=1,
                col=column,
                hovertemplate=f"batch %{{x}}: %{{y:.4g}}<extra>{name}</extra>",
            )
    figure.update_layout(template=template(), height=360, title=title or "What a decode step costs (measured)")
    figure.update_xaxes(title="requests in the batch", rangemode="tozero")
    return figure.update_yaxes(rangemode="tozero")


def _line(index: int) -> dict[str, Any]:
    return {"color": style.policy_color(index), "width": 2.25}


def _mean(values: list[int]) -> float:
    return sum(values) / len(values)


def _get(point: Any, name: str) -> float:
    return point[name] if isinstance(point, Mapping) else getattr(point, name)
