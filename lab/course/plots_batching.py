"""Pictures of notebooks 02 and 03, each with alt text and a table made from the same numbers.

Every function shows its picture; put the call last in a cell. Colours and clock names come from `lab.live.style`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lab.course.waiting import busy_at, worst_wait
from lab.live import style
from lab.live.show import show
from lab.metrics import Report

SYMBOLS = ("circle", "diamond", "square", "cross")


def rectangle(report: Report) -> None:
    """One static batch as the rectangle that is computed: a row per request, a column per position."""
    infos = report.trace.requests
    prompt = max(info.num_prompt for info in infos.values())
    answer = max(len(times.tokens) for times in report.times.values())
    parts: dict[str, list[tuple[int, float, float]]] = {"padding": [], "prefill": [], "decode": [], "wasted": []}
    rows = []
    for place, (id, info) in enumerate(infos.items()):
        made = len(report.times[id].tokens)
        lengths = (prompt - info.num_prompt, info.num_prompt, made - 1, answer - made)
        begin = 0
        for name, length in zip(parts, lengths, strict=True):
            parts[name].append((place, begin, length))
            begin += length
        rows.append(
            dict(zip(("request", "padding", "prompt", "decode steps", "carried steps"), (id, *lengths), strict=True))
        )
    figure = go.Figure()
    for name, bars in parts.items():
        figure.add_bar(
            orientation="h",
            y=[place for place, *_ in bars],
            base=[begin for _, begin, _ in bars],
            x=[length for *_, length in bars],
            width=0.8,
            name=style.KIND[name].label,
            marker=_marker(name),
            hovertemplate="request %{y}: %{x} positions",
        )
    figure.update_layout(barmode="overlay")
    figure.update_xaxes(title="position in the row", range=[0, prompt + answer - 1], dtick=2)
    figure.update_yaxes(title="request", autorange="reversed", dtick=1)
    useless = report.padded_tokens
    total = useless + report.computed_tokens
    alt = (
        f"The rectangle of a static batch: {len(rows)} rows of {prompt + answer - 1} positions, {total} in all. "
        f"{useless} of them are useless: padding before short prompts, and rows that have finished."
    )
    _show(figure, "One static batch is a rectangle", alt, rows, height=130 + 44 * len(rows))


def size_curves(sweep: Mapping[float, Mapping[int, Report]]) -> None:
    """End-to-end latency and useless work over the batch size, one line per arrival rate."""
    figure = make_subplots(cols=2, rows=1, subplot_titles=("end-to-end latency, median (s)", "useless positions (%)"))
    sizes = list(next(iter(sweep.values())))
    for index, (rate, reports) in enumerate(sweep.items()):
        look = _look(f"{rate:g} requests/s", index)
        figure.add_scatter(x=sizes, y=[reports[size].e2e_s.p50 for size in sizes], **look, row=1, col=1)
    waste = [100 * _useless(next(iter(sweep.values()))[size]) for size in sizes]  # the same batches at every rate
    look = {"line": {"color": style.INK, "width": 3}, "marker": {"size": 9}, "mode": "lines+markers"}
    figure.add_scatter(x=sizes, y=waste, name="useless", showlegend=False, **look, row=1, col=2)
    figure.update_xaxes(title="batch size", type="log", tickvals=sizes, ticktext=[str(size) for size in sizes])
    figure.update_yaxes(rangemode="tozero")
    rows = [
        {"batch": size}
        | {f"{rate:g}/s, median (s)": round(reports[size].e2e_s.p50, 1) for rate, reports in sweep.items()}
        | {"useless (%)": round(100 * _useless(next(iter(sweep.values()))[size]), 1)}
        for size in sizes
    ]
    best = ", ".join(
        f"{min(sizes, key=lambda size: reports[size].e2e_s.p50)} at {rate:g}/s" for rate, reports in sweep.items()
    )
    alt = (
        f"Left: median latency over the batch size (simulated). Each curve falls and rises again; the best size is "
        f"{best}. Right: useless positions grow from {rows[0]['useless (%)']} % to {rows[-1]['useless (%)']} %."
    )
    _show(figure, "Too small, too large", alt, rows)


def bucket_work(reports: Mapping[str, Report]) -> None:
    """What is computed with each width of buckets, and the longest wait for a batch."""
    figure = make_subplots(cols=2, rows=1, subplot_titles=("positions computed", "longest wait for a batch (s)"))
    names, rows = list(reports), []
    for name, report in reports.items():
        carried = report.wasted_slots
        counts = {"useful": report.computed_tokens, "prompt padding": report.padded_tokens - carried}
        counts |= {"finished rows": carried, "longest wait (s)": worst_wait(report)}
        rows.append({"buckets": name} | counts)
    kinds = (("useful", {"color": style.BLUE}), ("prompt padding", _marker("padding")), ("finished rows", None))
    for kind, marker in kinds:
        marker = marker or {"color": style.YELLOW, "pattern": {"shape": "/", "size": 5, "solidity": 0.35}}
        figure.add_bar(x=names, y=[row[kind] for row in rows], name=kind, marker=marker, row=1, col=1)
    waits = [round(row["longest wait (s)"], 1) for row in rows]
    look = {"showlegend": False, "marker": {"color": style.KIND["queue"].color}}
    look |= {"textposition": "outside", "textangle": 0, "cliponaxis": False}
    figure.add_bar(x=names, y=waits, text=[f"{wait:g}" for wait in waits], **look, row=1, col=2)
    figure.update_layout(barmode="stack", bargap=0.35)
    figure.update_xaxes(title="width of the buckets (tokens)", type="category")
    figure.update_yaxes(range=[0, 1.15 * max(waits)], row=1, col=2)
    first, last = rows[0], rows[-1]
    alt = (
        f"From no buckets to buckets of {names[-1]} tokens, padding falls from {first['prompt padding']:,} to "
        f"{last['prompt padding']:,} positions, rows of finished requests from {first['finished rows']:,} to "
        f"{last['finished rows']:,}, and the longest wait (simulated) grows from {waits[0]:g} s to {waits[-1]:g} s."
    )
    _show(figure, "What length buckets save, and what they cost", alt, rows)


def waits(report: Report, delay: float) -> None:
    """How long each request waited, over its arrival, beside the delay: by what was going on when its timer fired."""
    kinds: dict[str, list[Any]] = {
        "has started by then": [],
        "waits on: a batch is running": [],
        "waits on: the engine is idle": [],
    }
    for times in report.times.values():
        fires = times.arrival + delay
        late = times.admitted > fires + 1e-6
        kinds[list(kinds)[(1 if busy_at(report, fires) else 2) if late else 0]].append(times)
    figure, rows = go.Figure(), []
    for index, (name, some) in enumerate(kinds.items()):
        if index == 2 and not some:
            continue
        ages = [1000 * (times.admitted - times.arrival) for times in some]
        figure.add_scatter(
            x=[round(times.arrival, 4) for times in some],
            y=[round(age, 3) for age in ages],
            mode="markers",
            name=name,
            marker={"color": (style.BLUE, style.VERMILLION, style.BLACK)[index], "symbol": SYMBOLS[index], "size": 8},
            hovertemplate="arrives at %{x:.3f} s, waits %{y:.2f} ms",
        )
        longest = round(max(ages), 1) if ages else None
        rows.append({"when its timer fires": name, "requests": len(some), "longest wait (ms)": longest})
    figure.add_scatter(
        x=[0, round(max(times.arrival for times in report.times.values()), 3)],
        y=[1000 * delay] * 2,
        mode="lines",
        name=f"the delay, {1000 * delay:g} ms",
        line={"color": style.INK, "width": 1.5, "dash": "dash"},
    )
    figure.update_xaxes(title=f"arrival (s, {style.clock_name(report.measured)})")
    figure.update_yaxes(title="waiting before its batch (ms)", rangemode="tozero")
    said = "; ".join(
        f"{row['when its timer fires']}: {row['requests']}, longest wait {row['longest wait (ms)']} ms" for row in rows
    )
    alt = f"Waiting of {len(report.times)} requests, delay {1000 * delay:g} ms. When its timer fires, one … {said}."
    _show(figure, "When its timer fires, a request …", alt, rows)


def theory(points: Sequence[Mapping[str, float]]) -> None:
    """Greedy beside Inoue's bound, and its batches; points have load, measured, bound (seconds) and batch."""
    figure = make_subplots(cols=2, rows=1, subplot_titles=("mean latency (ms)", "mean batch"))
    loads = [point["load"] for point in points]
    figure.add_scatter(
        x=loads,
        y=[1000 * point["bound"] for point in points],
        mode="lines",
        name="Inoue's bound",
        line={"color": style.INK, "width": 2, "dash": "dash"},
        row=1,
        col=1,
    )
    for column, key, scale in ((1, "latency", 1000), (2, "batch", 1)):
        figure.add_scatter(
            x=loads,
            y=[scale * point[key] for point in points],
            mode="markers" if column == 1 else "lines+markers",
            name="greedy, counted in the engine",
            marker={"color": style.BLUE, "size": 9},
            line={"color": style.BLUE, "width": 2},
            showlegend=column == 1,
            row=1,
            col=column,
        )
    figure.update_xaxes(title="load ρ = λα", range=[0, 1])
    figure.update_yaxes(rangemode="tozero")
    rows = [
        {
            "load": point["load"],
            "greedy (ms)": round(1000 * point["latency"], 1),
            "bound (ms)": round(1000 * point["bound"], 1),
            "mean batch": round(point["batch"], 1),
        }
        for point in points
    ]
    alt = (
        f"Left: mean latency of greedy batching (simulated) lies at or a little below Inoue's bound at every load. "
        f"Right: its mean batch grows with the load, from {rows[0]['mean batch']} to {rows[-1]['mean batch']}."
    )
    _show(figure, "Without a timer, batches grow with the load", alt, rows)


def delay_curves(latency: Mapping[str, Mapping[float, float]], busy: Mapping[str, Mapping[float, float]]) -> None:
    """Mean latency (seconds) and busy share over the arrival rate, one line per delay."""
    figure = make_subplots(cols=2, rows=1, subplot_titles=("mean latency (ms)", "engine busy (%)"))
    rates = list(next(iter(latency.values())))
    for index, name in enumerate(latency):
        look = _look(name, index)
        figure.add_scatter(x=rates, y=[1000 * latency[name][rate] for rate in rates], **look, row=1, col=1)
        shares = [100 * busy[name][rate] for rate in rates]
        figure.add_scatter(x=rates, y=shares, **look, showlegend=False, row=1, col=2)
    figure.update_xaxes(title="requests/s", type="log", tickvals=rates, ticktext=[f"{rate:g}" for rate in rates])
    figure.update_yaxes(rangemode="tozero")
    rows = [
        {"requests/s": rate}
        | {f"{name} (ms)": round(1000 * latency[name][rate], 1) for name in latency}
        | {f"{name}, busy (%)": round(100 * busy[name][rate]) for name in latency}
        for rate in rates
    ]
    names, low = list(latency), rates[0]
    alt = (
        f"Left: at {low:g} requests/s every millisecond of delay is added to the mean latency (simulated), "
        f"{1000 * latency[names[0]][low]:.0f} ms without, {1000 * latency[names[-1]][low]:.0f} ms with {names[-1]}; "
        f"at {rates[-1]:g} requests/s all are close together. Right: with a longer delay the engine is less busy."
    )
    _show(figure, "What a fixed delay does to calm traffic", alt, rows)


def controllers(latency: Mapping[str, Mapping[str, float]]) -> None:
    """Mean latency of each controller as a multiple of the first one's, by traffic: latency[controller][traffic]."""
    figure = go.Figure()
    names, base = list(latency), next(iter(latency.values()))
    for index, traffic in enumerate(base):
        figure.add_scatter(
            x=names,
            y=[latency[name][traffic] / base[traffic] for name in names],
            mode="markers",
            name=traffic,
            marker={"color": style.policy_color(index), "symbol": SYMBOLS[index], "size": 11},
            hovertemplate=f"%{{x}}, {traffic}: %{{y:.2f}} × {names[0]}",
        )
    figure.add_hline(y=1.0, line={"color": style.INK, "width": 1.5, "dash": "dash"})
    figure.update_xaxes(type="category")
    figure.update_yaxes(title=f"mean latency ÷ {names[0]}'s (simulated)")
    rows = [
        {"controller": name}
        | {f"{traffic} (ms)": round(1000 * value, 1) for traffic, value in latency[name].items()}
        | {f"{traffic}, × {names[0]}": round(value / base[traffic], 2) for traffic, value in latency[name].items()}
        for name in names
    ]
    best = {traffic: min(names, key=lambda name, t=traffic: latency[name][t]) for traffic in base}
    text = "; ".join(f"{t}: best is {name} with {latency[name][t] / base[t]:.2f}" for t, name in best.items())
    alt = f"Mean latency of {len(names)} controllers as a multiple of {names[0]}'s, by traffic. {text}."
    _show(figure, "Controllers, compared with no timer at all", alt, rows, height=400)


def _useless(report: Report) -> float:
    return report.padded_tokens / (report.padded_tokens + report.computed_tokens)


def _look(name: str, index: int) -> dict[str, Any]:
    return {
        "mode": "lines+markers",
        "name": name,
        "line": {"color": style.policy_color(index), "width": 3},
        "marker": {"symbol": SYMBOLS[index % len(SYMBOLS)], "size": 9},
    }


def _marker(name: str) -> dict[str, Any]:
    kind = style.KIND[name]
    hatch = {"pattern": {"shape": "/", "size": 5, "solidity": 0.35}} if kind.hatched else {}
    return {"color": kind.color, "line": {"width": 0}, **hatch}


def _show(figure: go.Figure, title: str, alt: str, rows: list[dict[str, Any]], height: int = 360) -> None:
    panels = bool(figure.layout.annotations) and figure.layout.annotations[0].yref == "paper"
    figure.update_layout(title=title, height=height + 24 * panels)
    if panels:
        figure.update_layout(legend={"y": 1 + 36 / height}, margin={"t": 100})
    show(figure, alt=alt, table=rows)
