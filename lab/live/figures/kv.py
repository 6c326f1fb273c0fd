"""The KV pool over time: blocks in use, blocks that only a prefix cache holds, free ones; and empty slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lab.live import style
from lab.live.figures.base import clock_of, finish, groups
from lab.live.figures.walk import Level, levels
from lab.live.names import counted, literal
from lab.metrics import Report

#: (counter, label, colour) from the bottom up
PARTS = (
    ("used", "used by requests", style.BLUE),
    ("cached", "only in the prefix cache", style.GREEN),
    ("free", "free", "#9aa0a6"),
)


def kv_occupancy(report: Report, title: str | None = None) -> go.Figure:
    """Blocks of the pool after each step, stacked; below, the share of slots in used blocks that hold no token.

    Of a long run every point is the fullest moment of several steps.
    """
    every = list(levels(report.trace))
    steps = [max(every[group.start : group.stop], key=lambda step: step.used) for group in groups(len(every))]
    total = steps[0].used + steps[0].cached + steps[0].free if steps else report.trace.meta.get("num_blocks", 0)
    figure = make_subplots(2, 1, shared_xaxes=True, row_heights=[0.72, 0.28], vertical_spacing=0.07)
    ends = [round(step.end, 5) for step in steps]
    if len(steps) == 1:  # an area needs two points: the step's beginning and its end
        steps, ends = steps * 2, [round(report.trace[0].start, 5), *ends]
    heights = [0] * len(steps)
    peak = max((step.used + step.cached for step in steps), default=0)
    roof = total if 8 * peak > total else 2 * peak or total  # a pool that is nearly empty is shown in part
    layers = []
    for name, label, color in PARTS:
        values = [getattr(step, name) for step in steps]
        heights = [height + value for height, value in zip(heights, values, strict=True)]
        if any(values):
            layers.append((label, color, list(heights), values))
    for label, color, tops, values in reversed(layers):  # the highest first: the others are drawn over it
        figure.add_scatter(
            x=ends,
            y=[min(top, roof) for top in tops],
            name=label,
            mode="lines",
            line={"color": color, "width": 1, "shape": "vh"},
            fill="tozeroy",
            fillcolor=color if label != "free" else "rgba(154,160,166,0.25)",
            customdata=values,
            hovertemplate=f"%{{customdata}} of {total} blocks {label}<br>at %{{x:.2f}} s<extra></extra>",
            row=1,
            col=1,
        )
    _waste(figure, steps, ends)
    clock = clock_of([report])
    figure.update_xaxes(title=f"time (s, {clock})", row=2, col=1)
    blocks = "blocks" if roof == total else f"blocks (of {total:,})"
    figure.update_yaxes(title=blocks, range=[0, 1.04 * (roof or 1)], row=1, col=1)
    figure.update_yaxes(title="empty (%)", range=[0, 105], tickvals=[0, 50, 100], row=2, col=1)
    table, alt = _summary(report, every, total, clock)
    name = report.axes.get("memory", "")
    return finish(
        figure, title or f"Who holds the KV blocks? ({literal(name)})", alt, table, 420, hovermode="x unified"
    )


def _waste(figure: go.Figure, steps: Sequence[Level], ends: list[float]) -> None:
    shares = [100 * (1 - step.resident / step.slots) if step.slots else None for step in steps]
    figure.add_scatter(
        x=ends,
        y=shares,
        name="slots of used blocks without a token",
        mode="lines",
        line={"color": style.VERMILLION, "width": 2, "shape": "vh", "dash": "dot"},
        hovertemplate="%{y:.0f} % of the slots in used blocks hold no token<extra></extra>",
        row=2,
        col=1,
    )


def _summary(report: Report, steps: Sequence[Level], total: int, clock: str) -> tuple[list[dict[str, Any]], str]:
    after = max((step.used for step in steps), default=0)
    cached = max((step.cached for step in steps), default=0)
    waste = None if report.kv_waste is None else 100 * report.kv_waste
    rows = [
        {"what": "blocks in the pool", "value": total},
        {"what": "most used at once (during a step)", "value": report.peak_blocks},
        {"what": "most used after a step", "value": after},
        {"what": "most held only by the prefix cache", "value": cached},
        {"what": "empty slots in used blocks, mean over steps (%)", "value": waste},
        {"what": "preemptions", "value": report.preemptions},
    ]
    if not steps:
        return rows, f"Blocks of the KV pool over time ({clock}): the run has 0 steps, so there is nothing to show."
    alt = f"Blocks of the KV pool over time ({clock}): of {counted(total, 'block')} requests use at most "
    alt += f"{report.peak_blocks} during a step and {after} after one"
    alt += f", and the prefix cache alone holds at most {cached}" if cached else ""
    alt += "." if waste is None else f"; on average {waste:.0f} % of the slots in used blocks hold no token."
    return rows, alt
