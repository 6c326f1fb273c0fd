"""Work that nobody needed: padding, rows of requests that had ended, tokens computed a second time."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from lab.live import style
from lab.live.figures.base import Runs, finish, kind_marker, reports_of
from lab.live.figures.composition import step_tokens
from lab.metrics import Report

AGAIN = ("computed again after a preemption", {"color": style.YELLOW, "line": {"width": 0}})


def padding_waste(runs: Runs, title: str | None = None) -> go.Figure:
    """Per run, the share of all computed positions that was of use, padding, for ended requests, or repeated."""
    reports = reports_of(runs)
    counts = {name: _counts(report) for name, report in reports.items()}
    looks = {
        "useful": {"color": style.BLUE, "line": {"width": 0}},
        style.KIND["padding"].label: kind_marker(style.KIND["padding"]),
        style.KIND["wasted"].label: kind_marker(style.Kind("wasted", "", "", style.PURPLE, hatched=True)),
        AGAIN[0]: AGAIN[1],
    }
    figure = go.Figure()
    for label, marker in looks.items():
        shares = [100 * parts[label] / max(1, sum(parts.values())) for parts in counts.values()]
        if not any(shares):
            continue
        words = [
            f"{name}: {parts[label]:,} of {sum(parts.values()):,} computed positions<br>{label} ({share:.1f} %)"
            for (name, parts), share in zip(counts.items(), shares, strict=True)
        ]
        look = {"name": label, "marker": marker, "hovertext": words, "hoverinfo": "text"}
        figure.add_bar(orientation="h", y=list(counts), x=shares, **look)
    figure.update_xaxes(title="share of all computed positions (%, counted)", range=[0, 100])
    figure.update_yaxes(autorange="reversed", showgrid=False)
    table = [_row(name, parts) for name, parts in counts.items()]
    alt = "Share of computed positions that was of use: "
    alt += ", ".join(f"{row['run']} {row['useful (%)']:.0f} %" for row in table) + "."
    height = 110 + 40 * len(counts)
    return finish(figure, title or "How much of the work was needed?", alt, table, height, barmode="stack", bargap=0.35)


def _counts(report: Report) -> dict[str, int]:
    """Positions by what became of them. Identity: their sum is computed_tokens + padded_tokens."""
    padding = wasted = 0
    for step in report.trace:
        _, _, pad, carried = step_tokens(step, report)
        padding, wasted = padding + pad, wasted + carried
    return {
        "useful": report.computed_tokens - report.recomputed_tokens,
        style.KIND["padding"].label: padding,
        style.KIND["wasted"].label: wasted,
        AGAIN[0]: report.recomputed_tokens,
    }


def _row(name: str, parts: dict[str, int]) -> dict[str, Any]:
    total = sum(parts.values())
    return {"run": name, **parts, "all": total, "useful (%)": 100 * parts["useful"] / max(1, total)}
