"""Pictures of notebooks 07 and 09, each with alt text and a table made from the same numbers (see plots.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lab.cluster.prefill import PrefillCost
from lab.course.chunk_work import chunks_of
from lab.course.stalls import longest_gap
from lab.live import style
from lab.live.show import show
from lab.metrics import Report

SYMBOLS = ("circle", "diamond", "square", "cross", "triangle-up", "x")
EARLIER = {"color": style.VERMILLION, "pattern": {"shape": "/", "size": 5, "solidity": 0.35}}


def staircase(
    reports: Mapping[str, Report],
    request: int = 0,
    title: str = "What one reader sees while a long prompt comes in",
) -> None:
    """Output tokens of one request over time; a flat stretch is a stall."""
    figure, rows, said = go.Figure(), [], []
    for index, (name, report) in enumerate(reports.items()):
        times = report.times[request]
        made = list(range(1, len(times.tokens) + 1))
        figure.add_scatter(
            x=[round(time, 4) for time in times.tokens],
            y=made,
            mode="lines+markers",
            name=name,
            line={"color": style.policy_color(index), "width": 2, "shape": "hv", "dash": style.POLICY_DASHES[index]},
            marker={"symbol": SYMBOLS[index], "size": 6},
            hovertemplate=f"{name}: token %{{y}} at %{{x:.2f}} s<extra></extra>",
        )
        longest = max(times.gaps)
        rows.append(
            {
                "run": name,
                "tokens": len(made),
                "first token (s)": round(times.tokens[0], 2),
                "last token (s)": round(times.tokens[-1], 2),
                "longest gap (s)": round(longest, 3),
            }
        )
        said.append(f"{name}: the longest gap is {longest:.2f} s")
    clock = _clock(reports)
    figure.update_xaxes(title=f"time (s, {clock})", rangemode="tozero")
    figure.update_yaxes(title="output tokens so far", rangemode="tozero")
    alt = f"Output tokens of request {request} over time. {'; '.join(said)}."
    _show(figure, title, alt, rows)


def step_fill(report: Report, title: str, budget: int | None = None, most: int = 40) -> None:
    """Tokens of the first steps: decodes at the bottom, prompt tokens on top, the budget as a line."""
    steps = list(report.trace)[:most]
    decodes = [sum(row.num_tokens == 1 for row in step.rows) for step in steps]
    prompts = [step.computed - count for step, count in zip(steps, decodes, strict=True)]
    figure = go.Figure()
    place = [step.index for step in steps]
    figure.add_bar(x=place, y=decodes, name="decodes", marker={"color": style.KIND["decode"].color})
    figure.add_bar(x=place, y=prompts, name="prompt tokens", marker={"color": style.KIND["prefill"].color})
    figure.update_layout(barmode="stack", bargap=0.1)
    if budget is not None:
        figure.add_hline(y=budget, line={"color": style.INK, "width": 1.5, "dash": "dash"})
    figure.update_xaxes(title="step")
    figure.update_yaxes(title="tokens in the step (counted)", rangemode="tozero")
    rows = [
        {"step": step.index, "decodes": count, "prompt tokens": tokens, "ms": round(1000 * (step.end - step.start))}
        for step, count, tokens in zip(steps, decodes, prompts, strict=True)
    ]
    mixed = sum(count > 0 and tokens > 0 for count, tokens in zip(decodes, prompts, strict=True))
    limit = "" if budget is None else f" The dashed line is the budget of {budget}; no step is above it."
    alt = (
        f"Tokens in each of the first {len(steps)} steps. The largest has {max(s.computed for s in steps)} tokens; "
        f"{mixed} of them hold decodes and prompt tokens together.{limit}"
    )
    _show(figure, title, alt, [row for row in rows if row["prompt tokens"]] or rows[:6])


def budget_curve(sweep: Mapping[int, Report], bound: Mapping[int, float]) -> None:
    """Throughput and the longest gap over the token budget, with the bound of the gap."""
    figure = make_subplots(cols=2, rows=1, subplot_titles=("output tokens per second", "longest gap between tokens"))
    budgets, clock = list(sweep), _clock(sweep.values())
    speeds = [report.output_tokens_per_s for report in sweep.values()]
    gaps = [longest_gap(report) for report in sweep.values()]
    look = {"mode": "lines+markers", "marker": {"size": 9}}
    figure.add_scatter(
        x=budgets,
        y=speeds,
        name="throughput",
        line={"color": style.GREEN, "width": 3},
        showlegend=False,
        col=1,
        row=1,
        **look,
    )
    marker = {"size": 11, "color": style.PURPLE}
    figure.add_scatter(x=budgets, y=gaps, name="longest gap", mode="markers", marker=marker, col=2, row=1)
    figure.add_scatter(
        x=budgets,
        y=[bound[budget] for budget in budgets],
        mode="lines",
        name="bound: one full step",
        line={"color": style.INK, "width": 2, "dash": "dash"},
        col=2,
        row=1,
    )
    figure.update_xaxes(
        title="token budget", type="log", tickvals=budgets, ticktext=[str(budget) for budget in budgets]
    )
    figure.update_yaxes(title=f"tokens/s ({clock})", rangemode="tozero", col=1, row=1)
    figure.update_yaxes(title=f"s ({clock})", rangemode="tozero", col=2, row=1)
    rows = [
        {
            "budget": budget,
            "tokens/s": round(speed, 1),
            "longest gap (s)": round(gap, 3),
            "bound (s)": round(bound[budget], 3),
        }
        for budget, speed, gap in zip(budgets, speeds, gaps, strict=True)
    ]
    alt = (
        f"Throughput and longest gap for token budgets from {budgets[0]} to {budgets[-1]}. Throughput rises from "
        f"{speeds[0]:.0f} to {max(speeds):.0f} tokens per second, hardly changing from {_knee(budgets, speeds)} tokens "
        f"on; the longest gap grows from {gaps[0]:.2f} to {gaps[-1]:.2f} s and never exceeds the bound."
    )
    _show(figure, "The budget trades throughput against gaps", alt, rows)


def _knee(budgets: Sequence[int], speeds: Sequence[float]) -> int:
    return next(budget for budget, speed in zip(budgets, speeds, strict=True) if speed >= 0.95 * max(speeds))


def chunk_pairs(prompt: int, size: int) -> None:
    """Attention of equal-token chunks: pairs within the chunk, and pairs with all that came before."""
    chunks = chunks_of(prompt, size)
    names = [f"{chunk.start:,}–{chunk.start + chunk.tokens:,}" for chunk in chunks]
    figure = go.Figure()
    own = [chunk.pairs - chunk.earlier for chunk in chunks]
    figure.add_bar(x=names, y=own, name="within the chunk", marker={"color": style.BLUE})
    figure.add_bar(x=names, y=[chunk.earlier for chunk in chunks], name="with earlier chunks", marker=EARLIER)
    figure.update_layout(barmode="stack", bargap=0.25)
    figure.update_xaxes(title="tokens of the prompt")
    figure.update_yaxes(title="query-key pairs (counted)", rangemode="tozero")
    total = sum(chunk.pairs for chunk in chunks)
    rows = [
        {"chunk": name, "pairs": chunk.pairs, "share": f"{chunk.pairs / total:.1%}", "re-read": chunk.start}
        for name, chunk in zip(names, chunks, strict=True)
    ]
    alt = (
        f"Query-key pairs of a prompt of {prompt:,} tokens in {len(chunks)} chunks of {size:,}. The first chunk has "
        f"{chunks[0].pairs / total:.1%} of them, the last {chunks[-1].pairs / total:.1%}; what grows is the part with "
        f"earlier chunks."
    )
    _show(figure, "Equal tokens, unequal work", alt, rows)


def chunk_seconds(report: Report) -> None:
    """Time of each step of a chunked prompt."""
    steps = [step for step in report.trace if step.computed > 1]
    names = [f"{step.rows[0].start}–{step.rows[0].start + step.computed}" for step in steps]
    seconds = [step.end - step.start for step in steps]
    figure = go.Figure()
    figure.add_bar(x=names, y=[1000 * value for value in seconds], name="chunk", marker={"color": style.ORANGE})
    figure.update_layout(bargap=0.3)
    figure.update_xaxes(title="tokens of the prompt")
    figure.update_yaxes(title=f"time of the step (ms, {style.clock_name(report.measured)})", rangemode="tozero")
    rows = [
        {"chunk": name, "tokens": step.computed, "ms": round(1000 * value)}
        for name, step, value in zip(names, steps, seconds, strict=True)
    ]
    alt = (
        f"Time of {len(steps)} chunks of {steps[0].computed} tokens each: the first takes {1000 * seconds[0]:.0f} ms, "
        f"the last {1000 * seconds[-1]:.0f} ms."
    )
    _show(figure, "The same number of tokens, later in the prompt", alt, rows)


def splits(placements: Mapping[str, Any], kernel: str) -> None:
    """Work of every device, prompt by prompt; what a padded kernel adds is hatched."""
    cost = PrefillCost(kernel)
    figure, rows, said, padded = go.Figure(), [], [], False
    deepest = max(len(device) for split in placements.values() for device in split.assignment)
    bars = [f"{name}<br>device {d}" for name, split in placements.items() for d in range(1, len(split.assignment) + 1)]
    devices = [device for split in placements.values() for device in split.assignment]
    for place in range(deepest):
        own = [_own(device, place) for device in devices]
        added = [
            cost([max(device)]) - mine if mine and kernel == "padded" else 0
            for device, mine in zip(devices, own, strict=True)
        ]
        text = {"marker": {"color": style.POLICY_COLORS[2] if place % 2 else style.SKY}}
        figure.add_bar(x=bars, y=own, name="needed work", legendgroup="own", showlegend=place == 0, **text)
        if any(added):
            figure.add_bar(x=bars, y=added, name="padding", legendgroup="pad", showlegend=not padded, marker=EARLIER)
            padded = True
    for name, split in placements.items():
        rows += [
            {"split": name, "device": d, "prompts": ", ".join(map(str, sorted(device))), "work": work}
            for d, (device, work) in enumerate(zip(split.assignment, split.costs, strict=True), 1)
        ]
        said.append(f"{name}: critical path {split.critical_path:,}, total {split.total:,}")
    figure.update_layout(barmode="stack", bargap=0.35)
    figure.update_yaxes(title="query-key pairs (counted)", rangemode="tozero")
    figure.update_xaxes(title="", tickangle=0)
    named = {"varlen": "variable-length"}.get(kernel, kernel)
    alt = f"Attention work of each device, {named} kernel. {'; '.join(said)}. The tallest bar is the critical path."
    _show(figure, f"Work of each device, {named} kernel", alt, rows, height=400)


def _own(device: Sequence[int], place: int) -> int:
    ordered = sorted(device, reverse=True)
    return PrefillCost("varlen")([ordered[place]]) if place < len(ordered) else 0


def orders(rows: Sequence[dict[str, Any]], mean: str, worst: str) -> None:
    """One mark per order: the mean against the worst."""
    figure = go.Figure()
    for index, row in enumerate(rows):
        figure.add_scatter(
            x=[row[mean]],
            y=[row[worst]],
            mode="markers",
            name=row["order"],
            marker={"color": style.policy_color(index), "symbol": SYMBOLS[index % len(SYMBOLS)], "size": 13},
        )
    figure.update_xaxes(title=mean.replace("(s)", "(s, simulated)"), rangemode="tozero")
    figure.update_yaxes(title=worst.replace("(s)", "(s, simulated)"), rangemode="tozero")
    first, best = rows[0], min(rows, key=lambda row: row[mean])
    alt = (
        f"Each order by {mean} and {worst}. {first['order']}: {first[mean]:.2f} and {first[worst]:.2f}. The lowest "
        f"mean has {best['order']} with {best[mean]:.2f}, and there the longest wait is {best[worst]:.2f}."
    )
    _show(figure, "A shorter mean, and who pays for it", alt, list(rows), height=400)


def in_time_curves(table: Mapping[str, Mapping[float, float]]) -> None:
    """Share of requests in time over the arrival rate, a line per order."""
    figure = go.Figure()
    for index, (name, line) in enumerate(table.items()):
        figure.add_scatter(
            x=list(line),
            y=[100 * share for share in line.values()],
            mode="lines+markers",
            name=name,
            line={"color": style.policy_color(index), "width": 3, "dash": style.POLICY_DASHES[index % 6]},
            marker={"symbol": SYMBOLS[index % len(SYMBOLS)], "size": 9},
        )
    figure.update_xaxes(title="load (requests/s)")
    figure.update_yaxes(title="first token in time (%, simulated)", range=[0, 104])
    rates = list(next(iter(table.values())))
    rows = [{"requests/s": rate} | {name: f"{line[rate]:.0%}" for name, line in table.items()} for rate in rates]
    ends = "; ".join(f"{name} {line[rates[-1]]:.0%}" for name, line in table.items())
    alt = (
        f"Share of requests whose first token comes before its deadline, at {rates[0]:g} to {rates[-1]:g} requests per "
        f"second. At the highest rate: {ends}."
    )
    _show(figure, "Deadlines kept, from light load to overload", alt, rows, height=400)


def eight(table: Any, metric: str = "mean TTFT (s)") -> None:
    """All combinations of two axes and a kernel: throughput and one latency."""
    rows = table.rows()
    panels = ("output tokens/s", metric)
    figure = make_subplots(cols=2, rows=1, subplot_titles=panels)
    for attention in dict.fromkeys(row["attention"] for row in rows):
        some = [row for row in rows if row["attention"] == attention]
        for column, name in enumerate(panels, 1):
            figure.add_bar(
                x=[f"{row['batching']},<br>{_short(row['ordering'])}" for row in some],
                y=[row[name] for row in some],
                name=attention,
                legendgroup=attention,
                showlegend=column == 1,
                marker=EARLIER if attention == "padded" else {"color": style.BLUE},
                col=column,
                row=1,
            )
    figure.update_layout(barmode="group", bargap=0.25)
    figure.update_yaxes(rangemode="tozero")
    clock = _clock(table.reports.values())
    best = max(rows, key=lambda row: row["output tokens/s"])
    alt = (
        f"Throughput and {metric} of all eight combinations ({clock}). Most tokens per second, "
        f"{best['output tokens/s']}, come with {best['batching']}, {best['ordering']}, {best['attention']}."
    )
    _show(figure, f"Batching × order × kernel ({clock})", alt, rows)


def _short(order: str) -> str:
    return "shortest" if order == "shortest-prompt" else order


def _clock(reports: Any) -> str:
    several = reports.values() if isinstance(reports, Mapping) else reports
    return ", ".join(sorted({style.clock_name(report.measured) for report in several}))


def _show(figure: go.Figure, title: str, alt: str, rows: list[dict[str, Any]], height: int = 360) -> None:
    panels = bool(figure.layout.annotations) and figure.layout.annotations[0].yref == "paper"
    figure.update_layout(title=title, height=height + 24 * panels)
    if panels:
        figure.update_layout(legend={"y": 1 + 36 / height}, margin={"t": 100})
    show(figure, alt=alt, table=rows)
