"""Policies at several loads: what throughput costs in latency, and how much of the load is served in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from lab.errors import BadPolicy
from lab.live import style
from lab.live.figures.base import finish, marked, said, value_of
from lab.live.names import IN_LEGEND, counted, labels, literal, spelled

Sweep = Mapping[Any, Any]
LATENCY = {"ttft_s": "time to first token", "tpot_s": "time per output token", "itl_s": "inter-token latency"}
LATENCY["e2e_s"] = "end-to-end latency"
QUANTILE = {"mean": "mean", "p50": "median", "p95": "p95", "p99": "p99"}


def frontier(
    sweep: Sweep, latency: str = "e2e_s.p95", log: bool = False, title: str | None = None, load: str = "requests/s"
) -> go.Figure:
    """Latency over throughput, one line per policy, a point per load: down and to the right is better.

    `sweep` maps loads to runs by name (a Comparison, say), or names to reports by load; reports may be their JSON.
    `latency` is a Report name with a percentile; `load` is the unit of the loads. Raises BadPolicy for other sweeps.
    """
    lines = by_policy(sweep)
    label, quantile = _latency(latency)
    short = labels(lines, IN_LEGEND)
    figure, table = go.Figure(), []
    for index, (name, points) in enumerate(lines.items()):
        xs = [value_of(report, "output_tokens_per_s") for _, report in points]
        ys = [value_of(report, latency) for _, report in points]
        words = [
            f"{spelled(name)}<br>at {place:g} {literal(load)}: {said(x)} output tokens/s<br>"
            f"{label}, {quantile}: {said(y, 's')}"
            for (place, _), x, y in zip(points, xs, ys, strict=True)
        ]
        ends = [f"{place:g}" if i in (0, len(points) - 1) else "" for i, (place, _) in enumerate(points)]
        look = marked(index) | {"mode": "lines+markers+text", "text": ends, "textposition": "top center"}
        figure.add_scatter(x=xs, y=ys, name=short[index], hovertext=words, hoverinfo="text", **look)
        table += [
            {"run": name, load: place, "output tokens/s": x, f"{label}, {quantile} (s)": y}
            for (place, _), x, y in zip(points, xs, ys, strict=True)
        ]
    clock = _clock(lines)
    figure.update_xaxes(title=f"output tokens/s ({clock})", rangemode="tozero")
    figure.update_yaxes(title=f"{label}, {quantile} (s)", rangemode="tozero", type="log" if log else None)
    best = {
        name: max(value_of(report, "output_tokens_per_s") or 0 for _, report in points)
        for name, points in lines.items()
    }
    loads = len(table) // len(lines)
    alt = f"{label.capitalize()} ({quantile}) over throughput at {counted(loads, 'load')} ({clock}). "
    alt += "Most output tokens per second: " + ", ".join(f"{name} {said(value)}" for name, value in best.items()) + "."
    return finish(figure, title or f"What throughput costs in latency (numbers: {literal(load)})", alt, table, 380)


def goodput(sweep: Sweep, title: str | None = None, load: str = "requests/s") -> go.Figure:
    """Requests per second that met every SLO over the load, beside the line on which all of them would.

    `sweep` as in `frontier`; the runs need an SLO. Raises BadPolicy for runs without one.
    """
    lines = by_policy(sweep)
    missing = [name for name, points in lines.items() if any(value_of(r, "goodput_rps") is None for _, r in points)]
    if missing:
        raise BadPolicy(f"{', '.join(missing)}: no goodput without an SLO; run with slo=dict(ttft=1.0, tpot=0.2), say")
    figure, table = go.Figure(), []
    short = labels(lines, IN_LEGEND)
    places = sorted({place for points in lines.values() for place, _ in points})
    if load == "requests/s":
        dash = {"color": style.INK, "width": 1.5, "dash": "dash"}
        look = {"mode": "lines", "line": dash, "name": "all in time", "hoverinfo": "skip"}
        figure.add_scatter(x=[0, places[-1]], y=[0, places[-1]], **look)
    for index, (name, points) in enumerate(lines.items()):
        ys = [value_of(report, "goodput_rps") for _, report in points]
        shares = [_share(report) for _, report in points]
        words = [
            f"{spelled(name)}<br>at {place:g} {literal(load)}: {said(y)} requests/s met every limit<br>"
            f"{share:.0f} % of those that arrived"
            for (place, _), y, share in zip(points, ys, shares, strict=True)
        ]
        xs = [place for place, _ in points]
        figure.add_scatter(x=xs, y=ys, name=short[index], hovertext=words, hoverinfo="text", **marked(index))
        table += [
            {"run": name, load: x, "goodput (requests/s)": y, "in time (%)": share}
            for x, y, share in zip(xs, ys, shares, strict=True)
        ]
    clock, slo = _clock(lines), _slo(lines)
    figure.update_xaxes(title=f"load ({literal(load)})", rangemode="tozero")
    figure.update_yaxes(title=f"goodput (requests/s, {clock})", rangemode="tozero")
    most = {name: max(value_of(report, "goodput_rps") for _, report in points) for name, points in lines.items()}
    alt = f"Requests per second that meet {slo} over the load ({clock}). Most: "
    alt += ", ".join(f"{name} {said(value)}" for name, value in most.items()) + "."
    return finish(figure, title or f"Goodput: requests that meet {slo}", alt, table, 360)


def by_policy(sweep: Sweep) -> dict[str, list[tuple[float, Any]]]:
    """name -> (load, report) in order of the load, from either way of nesting."""
    found: dict[str, list[tuple[float, Any]]] = {}
    for outer, inner in sweep.items():
        for key, report in getattr(inner, "reports", inner).items():
            name, place = (key, outer) if isinstance(outer, int | float) else (outer, key)
            if not isinstance(place, int | float) or isinstance(place, bool):
                raise BadPolicy(
                    f"a sweep is load -> runs by name, or name -> reports by load; found {outer!r} -> {key!r}"
                )
            found.setdefault(str(name), []).append((place, report))
    if not found:
        raise BadPolicy("the sweep is empty: it needs at least one load with one run")
    return {name: sorted(points, key=lambda point: point[0]) for name, points in found.items()}


def _latency(name: str) -> tuple[str, str]:
    base, _, quantile = name.partition(".")
    if base not in LATENCY or quantile not in QUANTILE:
        raise BadPolicy(
            f"latency {name!r}: write one of {', '.join(LATENCY)} and .{', .'.join(QUANTILE)}, as in e2e_s.p95"
        )
    return LATENCY[base], QUANTILE[quantile]


def _share(report: Any) -> float:
    """Percent of the arrived requests that met every limit."""
    duration, arrived = value_of(report, "duration_s") or 0.0, value_of(report, "requests") or 0
    return 100 * (value_of(report, "goodput_rps") or 0.0) * duration / arrived if arrived else 0.0


def _clock(lines: Mapping[str, list[tuple[float, Any]]]) -> str:
    names = {style.clock_name(bool(value_of(report, "measured"))) for points in lines.values() for _, report in points}
    return ", ".join(sorted(names))


def _slo(lines: Mapping[str, list[tuple[float, Any]]]) -> str:
    limits = next((value_of(report, "slo") for points in lines.values() for _, report in points), None) or {}
    return ", ".join(f"{name.upper() if name != 'e2e' else name} ≤ {limit:g} s" for name, limit in limits.items())
