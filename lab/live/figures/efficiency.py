"""What a run's steps achieved over time: the share of the peak FLOP/s (MFU) and of the peak bandwidth (MBU) used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import plotly.graph_objects as go

from lab.errors import BadPolicy
from lab.live import style
from lab.live.figures.base import clock_of, finish
from lab.live.figures.roofline import peaks_of
from lab.live.names import literal
from lab.metrics import Report
from lab.peaks import Peaks

WINDOWS = 80
LINES = (
    ("a step is under way", "busy", style.INK, "dot"),
    ("memory traffic (MBU)", "bytes", style.GREEN, "solid"),
    ("arithmetic (MFU)", "flops", style.PURPLE, "dash"),
)


def efficiency(report: Report, peaks: Peaks | None = None, title: str | None = None) -> go.Figure:
    """MFU and MBU in windows of equal length, idle time counting as 0, and the share of time with a step under way.

    `peaks` as in `roofline`. Raises BadPolicy without peaks, or when no step says what it computed and moved.
    """
    peaks = peaks or peaks_of(report)
    if peaks is None:
        raise BadPolicy("no peak FLOP/s and bandwidth are known: `python3 -m lab doctor` measures this computer's")
    if not any(entry.flops or entry.bytes for entry in report.trace.entries()):
        raise BadPolicy("no step of this run says how many FLOP and bytes it took")
    end = report.trace[-1].end
    width = end / WINDOWS or 1.0
    sums = _windows(report, width)
    most = {"busy": 1.0, "flops": peaks.flops, "bytes": peaks.bytes_per_s}
    how = "modelled" if not report.measured else "counted from the steps"
    starts = [round(i * width, 6) for i in range(WINDOWS + 1)]
    figure, table = go.Figure(), []
    for label, name, color, dash in LINES:
        shares = [100 * value / width / most[name] for value in sums[name]]
        figure.add_scatter(
            x=starts,
            y=[*shares, shares[-1]],
            name=label,
            mode="lines",
            line={"color": color, "width": 2.25, "shape": "hv", "dash": dash},
            hovertemplate=f"%{{y:.1f}} %: {label}<br>in the {width:.3g} s from %{{x:.2f}} s<extra></extra>",
        )
        source = "the run's clock" if name == "busy" else f"{how}; peak: {peaks.source}"
        mean = 100 * sum(sums[name]) / end / most[name]
        table.append({"series": label, "mean (%)": mean, "most in a window (%)": max(shares), "source": source})
    clock = clock_of([report])
    figure.update_xaxes(title=f"time (s, {clock})", rangemode="tozero")
    figure.update_yaxes(title="share (%)", rangemode="tozero")
    numbers = ", ".join(f"{row['series']} {row['mean (%)']:.1f} %" for row in table)
    alt = f"Shares over time, means over the whole run ({clock}): {numbers}. Peaks: {peaks.source}."
    name = literal(report.axes.get("batching", "run"))
    return finish(figure, title or f"{name}: how well is the machine used? ({clock})", alt, table)


def _windows(report: Report, width: float) -> dict[str, list[float]]:
    """Seconds with a step under way, FLOP and bytes per window; a step is spread evenly over its time."""
    sums = {name: [0.0] * WINDOWS for _, name, *_ in LINES}
    for entry in report.trace.entries():
        for place, part in _parts(entry, width):
            share = part / (entry.end - entry.start)
            sums["busy"][place] += part
            sums["flops"][place] += share * entry.flops
            sums["bytes"][place] += share * entry.bytes
    return sums


def _parts(step: Any, width: float) -> Iterator[tuple[int, float]]:
    """The windows a step lies in, and for how long."""
    place = min(WINDOWS - 1, int(step.start / width))
    while place < WINDOWS and place * width < step.end:
        last = step.end if place == WINDOWS - 1 else min(step.end, (place + 1) * width)
        part = last - max(step.start, place * width)
        if part > 0:
            yield place, part
        place += 1
