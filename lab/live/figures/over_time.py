"""Quantities over the time of a run."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lab.errors import BadPolicy
from lab.live.figures.base import Runs, clock_of, finish, line, reports_of, said, tint
from lab.live.figures.walk import ends_of
from lab.live.names import IN_LEGEND, labels, literal, spelled
from lab.metrics import Report


def throughput_over_time(runs: Runs, window: float | None = None, title: str | None = None) -> go.Figure:
    """Output tokens per second in windows of equal length, below it the requests that wait."""
    reports = reports_of(runs)
    figure = make_subplots(2, 1, shared_xaxes=True, row_heights=[0.6, 0.4], vertical_spacing=0.08)
    longest = max((report.trace[-1].end for report in reports.values() if len(report.trace)), default=1.0)
    width = window or max(longest / 40, 1e-3)
    table = []
    for index, (name, report, label) in enumerate(
        zip(reports, reports.values(), labels(reports, IN_LEGEND), strict=True)
    ):
        times, rates = _rates(report, width, longest)
        ends, waiting = _queue(report)
        common = {"legendgroup": label, "name": label, "line": line(index) | {"shape": "hv"}, "mode": "lines"}
        text = f"{spelled(name)}<br>%{{y:.4g}} output tokens/s<br>in the {width:.3g} s from %{{x:.2f}} s<extra></extra>"
        look = {"fill": "tozeroy", "fillcolor": tint(line(index)["color"]), "hovertemplate": text}
        figure.add_scatter(x=times, y=rates, row=1, col=1, **look, **common)
        text = f"{spelled(name)}<br>requests that wait: %{{y}}, after the step that ends at %{{x:.2f}} s<extra></extra>"
        figure.add_scatter(x=ends, y=waiting, showlegend=False, hovertemplate=text, row=2, col=1, **common)
        table.append(
            {
                "run": name,
                "output tokens/s": report.output_tokens_per_s,
                f"busiest {width:.2g} s (tokens/s)": max(rates, default=0.0),
                "most waiting": max(waiting, default=0),
                "ends after (s)": ends[-1] if ends else 0.0,
            }
        )
    clock = clock_of(reports.values())
    figure.update_xaxes(title=f"time (s, {clock})", row=2, col=1)
    figure.update_yaxes(title="tokens/s", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title="waiting", rangemode="tozero", row=2, col=1)
    numbers = "; ".join(
        f"{row['run']} {row['output tokens/s']:.3g} tokens/s on average, at most {row['most waiting']} waiting"
        for row in table
    )
    alt = f"Output tokens per second and waiting requests over time ({clock}). {numbers}."
    return finish(figure, title or "Throughput and queue over time", alt, table, 400)


def _rates(report: Report, width: float, longest: float) -> tuple[list[float], list[float]]:
    """Beginnings of the windows, and tokens per second in them; the last value is 0, where the run has ended."""
    rates = [0.0] * (int(longest / width) + 2)
    for entry in report.trace.entries():
        sampled = entry.sampled / width
        for end in ends_of(entry):
            rates[int(end / width)] += sampled
    return [round(i * width, 6) for i in range(len(rates))], rates


def _queue(report: Report) -> tuple[list[float], list[int]]:
    ends, waiting = [], []
    for entry in report.trace.entries():
        steps = [(entry.end, entry.waiting)]
        if entry.repeat > 1:  # all steps of a stretch but the last leave the same queue
            steps.insert(0, (entry.stretch.ends[0], entry.stretch.waiting))
        for end, count in steps:
            if not waiting or count != waiting[-1]:
                ends.append(end)
                waiting.append(count)
    if ends and report.trace[-1].end > ends[-1]:
        ends.append(report.trace[-1].end)
        waiting.append(waiting[-1])
    return ends, waiting


PANELS = (("share (%)", "%"), ("GFLOP/s", "GFLOP/s"), ("GB/s", "GB/s"), ("power (W)", "W"), ("memory (GB)", "GB"))


def utilisation(log: Any, title: str | None = None) -> go.Figure:
    """What a `lab.live.monitor.Recorder` read: one panel per unit, each line named after its source.

    `efficiency` shows what the steps of a run achieved, measured or simulated. Raises BadPolicy when nothing was read.
    """
    series = log.series()
    panels = [(head, unit) for head, unit in PANELS if any(r.unit == unit for r, *_ in series.values())]
    if not panels:
        raise BadPolicy("the recorder has no readings: " + (" ".join(log.notes) or "nothing ran inside it"))
    figure = make_subplots(len(panels), 1, shared_xaxes=True, vertical_spacing=0.24 / len(panels))
    table = []
    for index, (name, (reading, times, values)) in enumerate(series.items()):
        row = [unit for _, unit in panels].index(reading.unit) + 1
        label = literal(f"{name}: {_short(reading.source)}")
        text = f"{spelled(reading.source)}<br>%{{y:.4g}} {reading.unit} at %{{x:.2f}} s<extra>{literal(name)}</extra>"
        figure.add_scatter(
            x=times, y=values, name=label, mode="lines+markers", line=line(index), marker={"size": 5}, row=row, col=1,
            hovertemplate=text,
        )  # fmt: skip
        mean = sum(values) / len(values)
        table.append(
            {"series": name, "mean": mean, "most": max(values), "unit": reading.unit, "source": reading.source}
        )
    for place, (head, _) in enumerate(panels, 1):
        figure.update_yaxes(title=head, rangemode="tozero", row=place, col=1)
    figure.update_xaxes(title="time (s, measured)", row=len(panels), col=1)
    said_all = "; ".join(f"{row['series']} {said(row['mean'])} {row['unit']} on average" for row in table)
    alt = f"Utilisation over time. {said_all}. {' '.join(log.notes)}".strip()
    return finish(figure, title or "Utilisation (measured)", alt, table, 90 + 150 * len(panels))


def _short(source: str) -> str:
    """The beginning of a source, for the legend."""
    text = source.split(",")[0].split(";")[0].removeprefix("MFU: ").removeprefix("MBU: ")
    return text if len(text) <= 40 else text[:39] + "…"
