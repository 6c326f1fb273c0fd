"""Pictures of notebook 10, each with alt text and a table made from the same numbers (see plots.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lab.course.several_lanes import places
from lab.experiments.streams import together
from lab.live import style
from lab.live.show import show
from lab.metrics import Report
from lab.trace import RunTrace, StepTrace

SYMBOLS = ("circle", "diamond", "square", "cross", "triangle-up", "x")
TICKS = [digit * 10**power for power in range(4) for digit in (1, 2, 5)]  # of logarithmic axes
KINDS = {
    "decode": ("decodes only", {"color": style.SKY}),
    "prefill": ("with prompt tokens", {"color": style.ORANGE}),
}


def in_flight(reports: Mapping[str, Report], seconds: float | None = None, title: str = "Steps in flight") -> None:
    """Every step as a bar from its start to its end, on a line of its own where others are in flight; to `seconds`."""
    figure, rows = go.Figure(), []
    bars: dict[str, dict[str, list]] = {kind: {"x": [], "base": [], "y": [], "hovertext": []} for kind in KINDS}
    labels: list[str] = []
    sliver = min(seconds or inf, max(report.duration_s for report in reports.values())) / 500  # between two bars
    for name, report in reports.items():
        placed = [pair for pair in places(report.trace) if seconds is None or pair[1].start < seconds]
        for place, step in placed:
            bar = bars["prefill" if _prompts(step, report.trace) else "decode"]
            length = max(step.end - step.start - sliver, 0.5 * (step.end - step.start))
            for key, value in zip(bar, (length, step.start, len(labels) + place, _words(step)), strict=True):
                bar[key].append(round(value, 5) if isinstance(value, float) else value)
        lines = 1 + max(place for place, _ in placed)
        labels += [name] if lines == 1 else [f"{name}, {line}" for line in range(1, lines + 1)]
        lengths = sorted(1e3 * (step.end - step.start) for _, step in placed)
        row = {"run": name, "steps shown": len(placed), "step, median (ms)": round(lengths[len(lengths) // 2], 1)}
        rows.append(row | {"share of the time with two in flight": f"{together(report):.0%}"})
    for kind, (label, color) in KINDS.items():
        if bars[kind]["x"]:
            look = {"marker": color, "hoverinfo": "text", "width": 0.7}
            figure.add_bar(orientation="h", name=label, **look, **bars[kind])
    clock = style.clock_name(next(iter(reports.values())).measured)
    figure.update_layout(barmode="overlay")
    figure.update_xaxes(title=f"time (s, {clock})", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", showgrid=False, tickvals=list(range(len(labels))), ticktext=labels)
    said = "; ".join(
        f"{row['run']}: {row['share of the time with two in flight']} of the time with two, "
        f"{row['step, median (ms)']} ms a step"
        for row in rows
    )
    alt = f"Every step of {len(rows)} runs as a bar over time, a line for each step that is in flight at once. {said}."
    _show(figure, title, alt, rows, 130 + 46 * len(labels))


def over_batch(table: Sequence[Mapping[str, Any]]) -> None:
    """Throughput relative to one batch, over the number of requests. Rows: requests, and a ratio per way."""
    figure, ways = go.Figure(), [name for name in table[0] if name != "requests"]
    sizes = [row["requests"] for row in table]
    for index, way in enumerate(ways):
        look = {"color": style.policy_color(index), "width": 3, "dash": style.POLICY_DASHES[index]}
        figure.add_scatter(
            x=sizes,
            y=[row[way] for row in table],
            mode="lines+markers",
            name=way,
            line=look,
            marker={"symbol": SYMBOLS[index], "size": 9},
        )
    figure.add_hline(y=1, line={"color": style.INK, "width": 1.5, "dash": "dash"})
    figure.update_xaxes(title="requests", type="log", tickvals=sizes, ticktext=[str(size) for size in sizes])
    figure.update_yaxes(title="÷ one batch (simulated)", rangemode="tozero")
    ends = "; ".join(f"{way} from {table[0][way]:.2f} to {table[-1][way]:.2f}" for way in ways)
    alt = (
        f"Output tokens per second relative to one batch, for {sizes[0]} to {sizes[-1]} requests. {ends}. "
        f"The dashed line is one batch."
    )
    _show(figure, "Output tokens per second: several streams ÷ one batch", alt, [dict(row) for row in table], 380)


def trade(tables: Mapping[str, Sequence[Mapping[str, Any]]], x: str, y: str) -> None:
    """One mark per way, by two latencies, a panel for each traffic. Towards the lower left is better."""
    figure = make_subplots(cols=len(tables), rows=1, subplot_titles=list(tables), horizontal_spacing=0.12)
    rows, said = [], []
    for column, (traffic, table) in enumerate(tables.items(), 1):
        for index, row in enumerate(table):
            size = 18 - 2 * index  # a mark that lies on another leaves its edge visible
            marker = {"color": style.policy_color(index), "symbol": SYMBOLS[index % len(SYMBOLS)], "size": size}
            figure.add_scatter(
                x=[row[x]],
                y=[row[y]],
                mode="markers",
                name=row["way"],
                legendgroup=row["way"],
                showlegend=column == 1,
                marker=marker,
                hovertemplate=f"{row['way']}: %{{x:.1f}} and %{{y:.1f}} ms<extra></extra>",
                col=column,
                row=1,
            )
            rows.append({"traffic": traffic, "way": row["way"], x: row[x], y: row[y]})
        heights = [row[y] for row in table]
        ticks = [tick for tick in TICKS if 0.95 * min(heights) <= tick <= 1.05 * max(heights)]  # none outside the axis
        figure.update_yaxes(type="log", tickvals=ticks, ticktext=[str(tick) for tick in ticks], col=column, row=1)
        best = min(table, key=lambda row: row[y])
        said.append(f"{traffic}: lowest {y} with {best['way']}, {best[y]:.1f} ms, at a {x} of {best[x]:.0f} ms")
    figure.update_xaxes(title=x.replace("(ms)", "(ms, simulated)"), rangemode="tozero")
    figure.update_yaxes(title=y.replace("(ms)", "(ms, simulated)"), col=1, row=1)
    alt = f"Each way to compute prompts beside decodes, by {x} and {y}. {'; '.join(said)}. Lower left is better."
    _show(figure, "Prefill beside decode: who waits, and who is interrupted", alt, rows, 380)


def fractions(table: Sequence[Mapping[str, Any]], x: str, panels: tuple[str, str]) -> None:
    """Two latencies over the share of the arithmetic that decodes are confined to."""
    figure = make_subplots(cols=2, rows=1, subplot_titles=panels, horizontal_spacing=0.12)
    shares = [row[x] for row in table]
    for column, (name, color) in enumerate(zip(panels, (style.GREEN, style.BLUE), strict=True), 1):
        values = [row[name] for row in table]
        look = {"line": {"color": color, "width": 3}, "marker": {"size": 9}}
        figure.add_scatter(x=shares, y=values, mode="lines+markers", showlegend=False, col=column, row=1, **look)
    figure.update_xaxes(title=f"share of the arithmetic {x}", rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title="ms, simulated", col=1, row=1)
    ends = "; ".join(f"{name} from {table[0][name]:.4g} to {table[-1][name]:.4g}" for name in panels)
    alt = f"With {x} from {shares[0]:g} to {shares[-1]:g}: {ends}."
    _show(figure, "A partition protects one phase and slows the other", alt, [dict(row) for row in table], 360)


def _prompts(step: StepTrace, trace: RunTrace) -> bool:
    return any(row.num_tokens > 1 or row.start < trace.requests[row.request].num_prompt for row in step.rows)


def _words(step: StepTrace) -> str:
    requests, seconds = len(step.rows), step.end - step.start
    return f"{requests} request{'s' if requests > 1 else ''}, {step.computed} tokens, {1e3 * seconds:.1f} ms"


def _show(figure: go.Figure, title: str, alt: str, rows: list[dict[str, Any]], height: int) -> None:
    panels = bool(figure.layout.annotations) and figure.layout.annotations[0].yref == "paper"
    figure.update_layout(title=title, height=height + 24 * panels)
    if panels:
        figure.update_layout(legend={"y": 1 + 36 / height}, margin={"t": 100})
    show(figure, alt=alt, table=rows)
