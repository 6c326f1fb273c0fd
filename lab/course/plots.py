"""Pictures of notebooks 00, 01 and 04, each with alt text and a table made from the same numbers.

Every function shows its picture; put the call last in a cell. Colours and clock names come from `lab.live.style`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lab.execution.curve import CurvePoint
from lab.live import figures, style
from lab.live.show import show
from lab.metrics import Report
from lab.running import Comparison

SYMBOLS = ("circle", "diamond", "square", "cross")


def finish_times(comparison: Comparison) -> None:
    """Seconds from arrival to the last token, per request and run."""
    names, figure = list(comparison.reports), go.Figure()
    first, last = comparison[names[0]], comparison[names[-1]]
    labels = [f"{i} · {len(times.tokens)}" for i, times in first.times.items()]
    for label, times in zip(labels, first.times.values(), strict=True):
        ends = [times.e2e, last.times[times.id].e2e]
        figure.add_scatter(
            x=ends, y=[label] * 2, mode="lines", line=_line(style.INK, 1), showlegend=False, hoverinfo="skip"
        )
    for index, (name, report) in enumerate(comparison.reports.items()):
        marker = {"color": style.policy_color(index), "symbol": SYMBOLS[index], "size": 11}
        ends = [times.e2e for times in report.times.values()]
        figure.add_scatter(x=ends, y=labels, mode="markers", marker=marker, name=name, hovertemplate="%{x:.2f} s")
    figure.update_yaxes(title="request · output tokens", autorange="reversed")
    figure.update_xaxes(title=f"answer finished after (s, {_clock(first)})", rangemode="tozero")
    rows = [
        {"request": i, "tokens": len(first.times[i].tokens)}
        | {f"{name} (s)": round(report.times[i].e2e, 2) for name, report in comparison.reports.items()}
        for i in first.times
    ]
    ends = [max(times.e2e for times in report.times.values()) for report in (first, last)]
    alt = (
        f"When each of {len(rows)} answers is finished. {names[0]}: one after the other, the last after "
        f"{ends[0]:.1f} s. {names[-1]}: the last after {ends[1]:.1f} s."
    )
    _show(figure, "When is each answer finished?", alt, rows, height=max(300, 90 + 36 * len(rows)))


def step_times(report: Report) -> None:
    """One bar per step; steps that compute several tokens stand out."""
    steps = list(report.trace)
    figure = go.Figure()
    kinds = {
        "computes several tokens": (style.ORANGE, [step for step in steps if step.computed > 1]),
        "computes one token": (style.SKY, [step for step in steps if step.computed <= 1]),
    }
    for name, (color, some) in kinds.items():
        figure.add_bar(
            x=[step.index for step in some],
            y=[1000 * (step.end - step.start) for step in some],
            customdata=[step.computed for step in some],
            name=name,
            marker={"color": color},
            width=0.85,
            hovertemplate="step %{x}: %{customdata} tokens computed in %{y:.1f} ms",
        )
    figure.update_layout(barmode="overlay")
    figure.update_xaxes(title="step")
    figure.update_yaxes(title=f"time of the step (ms, {_clock(report)})")
    rows = [{"step": s.index, "tokens computed": s.computed, "ms": round(1000 * (s.end - s.start), 1)} for s in steps]
    several = kinds["computes several tokens"][1]
    one = sorted(1000 * (step.end - step.start) for step in steps if step.computed <= 1)
    alt = (
        f"Time of each of {len(steps)} steps. {len(several)} of them compute several tokens, the first "
        f"{several[0].computed} tokens in {1000 * (several[0].end - several[0].start):.0f} ms; the others compute "
        f"one token each in {one[len(one) // 2]:.0f} ms (median)."
    )
    _show(figure, "How long does each step take?", alt, rows)


def tokens_computed(reports: dict[str, Report]) -> None:
    """Tokens that went through the model so far, over the output tokens made so far."""
    figure, rows = go.Figure(), []
    for index, (name, report) in enumerate(reports.items()):
        total, heights = 0, []
        for step in report.trace:
            total += step.computed
            heights.append(total)
        made = list(range(1, len(heights) + 1))
        line = _line(style.policy_color(index), 3, style.POLICY_DASHES[index * 2])
        figure.add_scatter(x=made, y=heights, mode="lines", name=name, line=line)
        for place, height in zip(made, heights, strict=True):
            if len(rows) < place:
                rows.append({"output tokens": place})
            rows[place - 1][name] = height
    figure.update_xaxes(title="output tokens made so far")
    figure.update_yaxes(title="tokens computed so far (counted)", rangemode="tozero")
    ends = "; ".join(f"{name}: {report.computed_tokens:,}" for name, report in reports.items())
    alt = (
        f"Tokens computed while an answer of {len(rows)} tokens is made. At the end, {ends}. With a cache the line "
        f"stays low and straight, without one it bends upwards."
    )
    _show(figure, "What the model computes for one answer", alt, rows[:: max(1, len(rows) // 8)])


def decode_curve(points: Sequence[CurvePoint]) -> None:
    """Step time and throughput over the batch size, beside what they would be if nothing were shared."""
    first, last = points[0], points[-1]
    rows = [
        {"batch": p.batch, "ms per step": round(p.step_ms, 1), "tokens/s": round(p.tokens_per_s, 1)} for p in points
    ]
    alt = (
        f"From batch {first.batch} to {last.batch} a decode step grows from {first.step_ms:.0f} to "
        f"{last.step_ms:.0f} ms (that many steps alone would take {last.batch * first.step_ms:.0f}), and throughput "
        f"from {first.tokens_per_s:.0f} to {last.tokens_per_s:.0f} tokens per second."
    )
    figure = figures.decode_curve(points)
    figure.update_layout(legend={"y": 1.1}, margin={"t": 100}, height=380)
    show(figure, alt=alt, table=rows)


def timelines(comparison: Comparison) -> None:
    """Requests × time, one picture per run, all on the same time axis."""
    longest = 1.02 * max(report.trace[-1].end for report in comparison.reports.values())
    for name, report in comparison.reports.items():
        rows = [
            {
                "request": times.id,
                "arrives (s)": round(times.arrival, 2),
                "first token (s)": round(times.arrival + times.ttft, 2),
                "done (s)": round(times.arrival + times.e2e, 2),
                "tokens": len(times.tokens),
            }
            for times in report.times.values()
        ]
        waits = report.queueing_s.p50 or 0.0
        alt = (
            f"{name}: {len(rows)} requests over time. Half of them wait over {waits:.2f} s to be computed; "
            f"{report.padded_tokens} tokens are padding or belong to finished requests; "
            f"the last answer is done at {report.trace[-1].end:.1f} s."
        )
        figure = figures.timeline(report, title=f"{name}: what each request is doing ({_clock(report)})")
        _merge_bars(figure, longest=0.004 * report.trace[-1].end)
        figure.update_layout(margin={"t": 104}, height=figure.layout.height + 28)
        figure.update_xaxes(range=[0, longest])
        show(figure, alt=alt, table=rows)


def _merge_bars(figure: go.Figure, longest: float) -> None:
    """Join bars of one row and kind with at most `longest` seconds between them: on a real clock, every two steps."""
    for trace in figure.data:
        if trace.type != "bar":
            continue
        bars: list[list[Any]] = []
        for length, row, start, width, offset in zip(
            trace.x, trace.y, trace.base, trace.width, trace.offset, strict=True
        ):
            last = bars[-1] if bars else None
            if last and last[1:4:2] == [row, width] and last[4] == offset and 0 <= start - last[2] - last[0] <= longest:
                last[0] = start + length - last[2]
            else:
                bars.append([length, row, start, width, offset])
        columns = dict(zip(("x", "y", "base", "width", "offset"), zip(*bars, strict=True), strict=True))
        columns = {name: [round(value, 3) for value in column] for name, column in columns.items()}
        columns["hovertext"] = [f"request {row}: {trace.name}, {length:.2f} s" for length, row, *_ in bars]
        trace.update(columns, overwrite=True)


def batch_sizes(reports: dict[str, Report], names: Sequence[str] = ()) -> None:
    """Rows of every step over time: useful ones, and those of finished requests that are still computed."""
    shown = {name: reports[name] for name in names or reports}
    figure = make_subplots(
        rows=len(shown), cols=1, shared_xaxes=True, subplot_titles=list(shown), vertical_spacing=0.14
    )
    for panel, report in enumerate(shown.values(), 1):
        spans = _spans(report)
        kinds = (
            ("useful rows", {"color": style.BLUE}, [0] * len(spans), [span[2] for span in spans]),
            (
                style.KIND["wasted"].label,
                _hatched("wasted"),
                [span[2] for span in spans],
                [span[3] for span in spans],
            ),
        )
        for label, marker, bases, heights in kinds:
            if any(heights) or panel == 1:
                figure.add_bar(
                    x=[round(start, 4) for start, *_ in spans],
                    width=[round(end - start, 4) for start, end, *_ in spans],
                    offset=0,
                    base=bases,
                    y=heights,
                    name=label,
                    legendgroup=label,
                    showlegend=panel == 1,
                    marker=marker | {"line": {"width": 0}},
                    hovertemplate=f"%{{x:.2f}} s: %{{y}} {label}<extra></extra>",
                    row=panel,
                    col=1,
                )
    most = max(len(step.rows) for report in shown.values() for step in report.trace)
    figure.update_layout(barmode="overlay", bargap=0)
    figure.update_yaxes(title="rows in the step", range=[0, most * 1.08], dtick=2)
    figure.update_xaxes(range=[0, 1.01 * max(report.trace[-1].end for report in shown.values())])
    figure.update_xaxes(title=f"time (s, {_clock(next(iter(shown.values())))})", row=len(shown), col=1)
    rows = [_batch_row(name, report) for name, report in shown.items()]
    alt = "Rows computed in each step over time. " + " ".join(
        f"{row['run']}: {row['useful rows per step']} useful rows per step on average, "
        f"{row['finished rows computed']} rows computed for finished requests, ends at {row['ends after (s)']} s."
        for row in rows
    )
    _show(figure, "Who sits in the batch?", alt, rows, height=150 + 150 * len(shown))


def _spans(report: Report) -> list[tuple[float, float, int, int]]:
    """(start, end, useful rows, finished rows); neighbouring steps with the same rows are one span."""
    spans: list[tuple[float, float, int, int]] = []
    for step in report.trace:
        useful = len(step.rows) - step.carried
        start, end, *rows = spans[-1] if spans else (0.0, -1.0, 0, 0)
        if rows == [useful, step.carried] and step.start - end < 0.002:
            spans[-1] = (start, step.end, useful, step.carried)
        else:
            spans.append((step.start, step.end, useful, step.carried))
    return spans


def _hatched(name: str) -> dict[str, Any]:
    return {"color": style.KIND[name].color, "pattern": {"shape": "/", "size": 5, "solidity": 0.35}}


def _batch_row(name: str, report: Report) -> dict[str, Any]:
    return {
        "run": name,
        "steps": report.steps,
        "useful rows per step": round(report.mean_batch, 2),
        "finished rows computed": report.wasted_slots,
        "ends after (s)": round(report.trace[-1].end, 2),
    }


def load_curves(sweep: dict[float, Comparison]) -> None:
    """Throughput and end-to-end latency over the arrival rate."""
    figure = make_subplots(cols=2, rows=1, subplot_titles=("output tokens per second", "end-to-end latency, median"))
    rates, names = list(sweep), list(next(iter(sweep.values())).reports)
    for index, name in enumerate(names):
        look = {
            "mode": "lines+markers",
            "name": name,
            "line": _line(style.policy_color(index), 3),
            "marker": {"symbol": SYMBOLS[index], "size": 9},
        }
        speeds = [sweep[rate][name].output_tokens_per_s for rate in rates]
        figure.add_scatter(x=rates, y=speeds, **look, col=1, row=1)
        figure.add_scatter(
            x=rates, y=[sweep[rate][name].e2e_s.p50 for rate in rates], **look, showlegend=False, col=2, row=1
        )
    clock = _clock(sweep[rates[0]][names[0]])
    figure.update_xaxes(title="load (requests/s)", rangemode="tozero")
    figure.update_yaxes(title=f"tokens/s ({clock})", rangemode="tozero", col=1, row=1)
    figure.update_yaxes(title=f"s ({clock})", rangemode="tozero", col=2, row=1)
    rows = [
        {"requests/s": rate}
        | {f"{name}, tokens/s": round(sweep[rate][name].output_tokens_per_s, 1) for name in names}
        | {f"{name}, end-to-end (s)": round(sweep[rate][name].e2e_s.p50 or 0.0, 2) for name in names}
        for rate in rates
    ]
    ends = ", ".join(f"{name} {sweep[rates[-1]][name].output_tokens_per_s:.0f}" for name in names)
    alt = (
        f"Throughput and median latency at {len(rates)} arrival rates, {rates[0]:g} to {rates[-1]:g} requests per "
        f"second. At the lowest rate throughput is nearly equal; at the highest it is {ends} tokens per second."
    )
    _show(figure, "The same requests at different loads", alt, rows)


def latency_curves(
    rates: Sequence[float], latency: dict[str, list[float]], limits: Sequence[float] = (0.06, 0.2)
) -> Any:
    """Median normalised latency over the arrival rate, with the limits at which rates are compared."""
    figure = go.Figure()
    for index, (name, values) in enumerate(latency.items()):
        figure.add_scatter(
            x=rates,
            y=[1000 * value for value in values],
            mode="lines+markers",
            name=name,
            line=_line(style.policy_color(index), 3),
            marker={"symbol": SYMBOLS[index], "size": 9},
        )
    for limit in limits:
        note = f"limit {1000 * limit:.0f} ms"
        figure.add_hline(
            y=1000 * limit, line=_line(style.INK, 1.5, "dash"), annotation_text=note, annotation_position="top left"
        )
    figure.update_xaxes(title="load (requests/s)", type="log", tickvals=list(rates), ticktext=[f"{r:g}" for r in rates])
    figure.update_yaxes(title="median ms per output token (simulated)", rangemode="tozero")
    rows = [
        {"requests/s": rate} | {f"{name} (ms)": round(1000 * values[index]) for name, values in latency.items()}
        for index, rate in enumerate(rates)
    ]
    ends = "; ".join(f"{name} {1000 * values[-1]:.0f} ms" for name, values in latency.items())
    alt = (
        f"Median end-to-end time per output token at {rates[0]:g} to {rates[-1]:g} requests per second. "
        f"All begin near {1000 * min(values[0] for values in latency.values()):.0f} ms; at the highest rate: {ends}."
    )
    _show(figure, "One pair of curves, many ratios", alt, rows)


def _line(color: str, width: float, dash: str = "solid") -> dict[str, Any]:
    return {"color": color, "width": width, "dash": dash}


def _clock(report: Report) -> str:
    return style.clock_name(report.measured)


def _show(figure: go.Figure, title: str, alt: str, rows: list[dict[str, Any]], height: int = 360) -> None:
    panels = bool(figure.layout.annotations) and figure.layout.annotations[0].yref == "paper"
    figure.update_layout(title=title, height=height + 24 * panels)
    if panels:
        figure.update_layout(legend={"y": 1 + 36 / height}, margin={"t": 100})
    show(figure, alt=alt, table=rows)
