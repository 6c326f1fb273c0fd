"""What steps are made of, and what a step costs by its size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lab.live import style
from lab.live.figures.base import finish, kind_marker, nothing
from lab.live.figures.walk import is_decode, kinds_of
from lab.live.names import counted, literal
from lab.metrics import Report

NAMES = ("prefill", "decode", "padding", "wasted")


def step_composition(report: Report, title: str | None = None, unit: str = "tokens", bars: int = 240) -> go.Figure:
    """What each step computed: prompt, output, padding, finished requests; in "tokens" or in "rows" (requests).

    More steps than `bars` are averaged in groups.
    """
    count = step_rows if unit == "rows" else step_tokens
    kinds = (kind for entry in report.trace.entries() for kind in kinds_of(entry))
    steps = [parts for step, times in kinds for parts in [count(step, report)] * times]
    group = max(1, -(-len(steps) // bars))
    firsts = list(range(0, len(steps), group))
    sums = {name: sum(row[place] for row in steps) for place, name in enumerate(NAMES)}
    figure = go.Figure()
    for place, name in enumerate(NAMES):
        means = [_mean([row[place] for row in steps[i : i + group]]) for i in firsts]
        kind = style.KIND[name]
        if any(means):
            one = unit.removesuffix("s")
            words = [
                f"{_steps(i, group, len(steps))}: {mean:.4g} {one if mean == 1 else unit} {WORDS[name]}"
                for i, mean in zip(firsts, means, strict=True)
            ]
            figure.add_bar(
                x=[i + (group - 1) / 2 for i in firsts],
                y=means,
                width=group,
                name=kind.label,
                marker=kind_marker(kind),
                hovertext=words,
                hoverinfo="text",
            )
    per = f"{unit} per step" if group <= 1 else f"{unit} per step (mean of {group} steps)"
    figure.update_xaxes(title="step")
    figure.update_yaxes(title=per, rangemode="tozero")
    table, alt = _summary(sums, len(steps), unit)
    if not any(sums.values()):
        nothing(figure, "nothing was computed")
    name = literal(report.axes.get("batching", "run"))
    return finish(figure, title or f"{name}: what each step computes", alt, table, barmode="stack", bargap=0)


batch_composition = step_composition

WORDS = {
    "prefill": "of prompts",
    "decode": "of output",
    "padding": "of padding, thrown away",
    "wasted": "for requests that had ended",
}


def _summary(sums: dict[str, int], steps: int, unit: str) -> tuple[list[dict[str, Any]], str]:
    total = sum(sums.values())
    if not total:
        table = [{"what": "nothing was computed", unit: 0, "per step": None, "share (%)": None}]
        return table, f"Nothing was computed: the run has {counted(steps, 'step')}."
    table = [
        {"what": style.KIND[name].label, unit: value, "per step": value / steps, "share (%)": 100 * value / total}
        for name, value in sums.items()
        if value
    ]
    parts = ", ".join(f"{value} {WORDS[name]}" for name, value in sums.items() if value)
    computes = f"{counted(steps, 'step')} compute{'s' if steps == 1 else ''}"
    return table, f"{computes} {counted(total, unit.removesuffix('s'))}: {parts}."


def _steps(first: int, group: int, steps: int) -> str:
    last = min(steps, first + group) - 1
    return f"step {first}" if last == first else f"steps {first}–{last}, on average"


def step_tokens(step: Any, report: Report) -> tuple[int, int, int, int]:
    """(prompt, output, padding, finished rows) tokens of a step."""
    prefill = decode = padding = wasted = 0
    for row in step.rows:
        if row.num_tokens == 0:
            wasted += row.padding
            continue
        padding += row.padding
        if is_decode(row, report.trace):
            decode += 1
        else:
            prefill += row.num_tokens
    return prefill, decode, padding, wasted


def step_rows(step: Any, report: Report) -> tuple[int, int, int, int]:
    """(prompt, output, 0, finished) rows of a step."""
    prompts = sum(row.num_tokens > 0 for row in step.rows)
    decodes = sum(is_decode(row, report.trace) for row in step.rows)
    return prompts - decodes, decodes, 0, step.carried


def decode_curve(points: Iterable[Any], title: str | None = None) -> go.Figure:
    """Time of a decode step and tokens per second against batch size, beside what one request at a time would give.

    `points` have batch, step_ms and tokens_per_s, as attributes or keys.
    """
    rows = [(_get(p, "batch"), _get(p, "step_ms"), _get(p, "tokens_per_s")) for p in points]
    batches = [batch for batch, *_ in rows]
    figure = make_subplots(1, 2, subplot_titles=("time of a step (ms)", "output tokens per second"))
    alone = ([b / batches[0] * rows[0][1] for b in batches], [rows[0][2]] * len(rows))
    lines = {
        "measured": ([ms for _, ms, _ in rows], [rate for *_, rate in rows], {"color": style.BLUE, "width": 2.5}),
        "one request at a time": (*alone, {"color": style.INK, "dash": "dash", "width": 1.5}),
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
    figure.update_xaxes(title="requests in the batch", rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    table = [{"batch": batch, "ms per step": ms, "tokens/s": rate} for batch, ms, rate in rows]
    first, last = rows[0], rows[-1]
    alt = (
        f"From batch {first[0]:g} to {last[0]:g} a decode step grows from {first[1]:.3g} to {last[1]:.3g} ms and "
        f"throughput from {first[2]:.3g} to {last[2]:.3g} tokens per second."
    )
    return finish(figure, title or "What a decode step costs (measured)", alt, table)


def _mean(values: list[int]) -> float:
    return sum(values) / len(values)


def _get(point: Any, name: str) -> float:
    return point[name] if isinstance(point, Mapping) else getattr(point, name)
