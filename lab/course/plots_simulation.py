"""Pictures of notebook 11, each with alt text and a table made from the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lab.course.scale import decode_seconds, knee
from lab.live import style
from lab.live.figures.base import finish, line, marked
from lab.live.show import show
from lab.metrics import percentile

TICKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


def replayed(pairs: Sequence[tuple[float, float, int]]) -> None:
    """Every step of a real run: (measured seconds, priced seconds, tokens in it); on the line both are equal."""
    figure = go.Figure()
    for name, some, color, symbol in (
        ("one-token rows only", [p for p in pairs if p[2] <= 8], style.SKY, "circle"),
        ("with prompt tokens", [p for p in pairs if p[2] > 8], style.ORANGE, "square"),
    ):
        if some:
            marker = {"color": color, "symbol": symbol, "size": 8, "line": {"width": 0.5, "color": style.INK}}
            look = {"mode": "markers", "name": name, "marker": marker}
            figure.add_scatter(x=[1e3 * p[0] for p in some], y=[1e3 * p[1] for p in some], **look)
    ends = [1e3 * value for p in pairs for value in p[:2]]
    low, high = 0.8 * min(ends), 1.2 * max(ends)
    dash = {"color": style.INK, "width": 1.5, "dash": "dash"}
    figure.add_scatter(x=[low, high], y=[low, high], mode="lines", line=dash, name="equal", hoverinfo="skip")
    figure.update_xaxes(title="measured (ms per step)", type="log", dtick="D2")
    figure.update_yaxes(title="simulated (ms per step)", type="log", dtick="D2")
    misses = sorted(abs(priced / real - 1) for real, priced, _ in pairs)
    middle, most = percentile(misses, 0.5), percentile(misses, 0.9)
    rows = [{"steps": len(pairs), "median error (%)": 100 * middle, "nine in ten within (%)": 100 * most}]
    alt = (
        f"Price over measured time of {len(pairs)} steps of a real run. The median error is {middle:.0%}, "
        f"nine steps in ten are within {most:.0%}."
    )
    show(finish(figure, "The same steps on two clocks", alt, rows, 400))


def profiles(fitted: Mapping[str, Mapping[str, Any]], model: str) -> None:
    """Published times of all linear layers beside the fitted curves, by tokens in the step."""
    figure, rows, said = go.Figure(), [], []
    for index, (gpu, row) in enumerate(fitted.items()):
        tokens = [int(n) for n in row["step_ms"]]
        real, ours = zip(*row["step_ms"].values(), strict=True)
        look = marked(index)
        marker = look["marker"] | {"size": 11}
        figure.add_scatter(x=tokens, y=real, mode="markers", marker=marker, name=f"{gpu.upper()}, published")
        figure.add_scatter(x=tokens, y=ours, mode="lines", line=look["line"], name=f"{gpu.upper()}, simulated")
        rows += [
            {
                "GPU": gpu,
                "tokens": n,
                "published (ms)": a,
                "simulated (ms)": b,
                "error (%)": round(100 * (b / a - 1), 1),
            }
            for n, a, b in zip(tokens, real, ours, strict=True)
        ]
        said.append(f"{gpu.upper()}: {real[0]:.1f} ms for one token, {real[-1]:.0f} ms for {tokens[-1]:,}")
    figure.update_xaxes(title="tokens in the step", type="log", tickvals=TICKS[::2])
    figure.update_yaxes(title="ms per step, linear layers", type="log", dtick="D2")
    alt = f"Time of the linear layers of {model}, published and simulated. Flat, then rising. {'; '.join(said)}."
    show(finish(figure, f"Linear layers of {model}: published and simulated", alt, rows, 420))


def decode_curves(models: Mapping[str, Any], batches: Sequence[int], context: int = 1) -> None:
    """A decode step by batch size: how many times as long as for one request, and tokens per second."""
    heads = ("time of a step ÷ that for one", "output tokens per second")
    figure, rows, said = make_subplots(1, 2, subplot_titles=heads, horizontal_spacing=0.11), [], []
    for index, (name, model) in enumerate(models.items()):
        seconds = [decode_seconds(model, batch, context) for batch in batches]
        rates = [batch / value for batch, value in zip(batches, seconds, strict=True)]
        bend = knee(model, context)
        figure.add_scatter(x=batches, y=[s / seconds[0] for s in seconds], name=name, **marked(index), row=1, col=1)
        figure.add_scatter(x=batches, y=rates, name=name, **marked(index), showlegend=False, row=1, col=2)
        ends = {"step for 1 (ms)": 1e3 * seconds[0], f"step for {batches[-1]} (ms)": 1e3 * seconds[-1]}
        rows.append({"machine": name, **ends, "twice as long from": bend, "most tokens/s": round(max(rates))})
        said.append(f"{name}: {bend}")
    dash = {"color": style.INK, "width": 1.5, "dash": "dash"}
    figure.add_hline(y=2, line=dash, row=1, col=1)
    figure.update_xaxes(title="requests in the step", type="log", tickvals=[b for b in TICKS if b <= batches[-1]][::2])
    tallest = max(
        decode_seconds(m, batches[-1], context) / decode_seconds(m, batches[0], context) for m in models.values()
    )
    ends = [log10(0.9), log10(1.2 * max(2.0, tallest))]
    figure.update_yaxes(title="× (simulated)", type="log", dtick="D2", range=ends, row=1, col=1)
    figure.update_yaxes(title="tokens/s (simulated)", type="log", dtick="D2", row=1, col=2)
    alt = "Decode steps by batch size, simulated. Requests from which a step takes twice as long as that for one: "
    alt += f"{', '.join(said)}."
    show(finish(figure, "Where the decode curve bends", alt, rows, 360))


def capacities(table: Sequence[Mapping[str, Any]]) -> None:
    """Highest rate that keeps the limits: rows with "policy", "trace" and "requests/s" (None: no rate does)."""
    figure = go.Figure()
    traces = list(dict.fromkeys(row["trace"] for row in table))
    for index, name in enumerate(traces):
        some = [row for row in table if row["trace"] == name]
        shape = {"pattern": {"shape": "/", "size": 6, "solidity": 0.35}} if index % 2 else {}
        figure.add_bar(
            x=[row["policy"] for row in some],
            y=[row["requests/s"] or 0 for row in some],
            text=["none" if row["requests/s"] is None else f"{row['requests/s']:.1f}" for row in some],
            textposition="outside",
            cliponaxis=False,
            name=name,
            marker={"color": style.BLUE if index % 2 == 0 else style.SKY, **shape},
        )
    most = max(row["requests/s"] or 0 for row in table)
    figure.update_layout(barmode="group", bargap=0.3)
    figure.update_yaxes(title="requests/s (simulated)", range=[0, 1.15 * most])
    words = [f"{row['policy']}, {row['trace']}: {_rate(row['requests/s'])}" for row in table]
    alt = f"Highest arrival rate at which nine requests in ten keep the limits (simulated). {'; '.join(words)}."
    show(finish(figure, "Capacity under these limits, by the length of the trial", alt, table, 360))


def _rate(value: float | None) -> str:
    return "no rate" if value is None else f"{value:.1f} requests per second"


def budgets(sweeps: Mapping[str, Mapping[int, Any]]) -> None:
    """Output tokens per second over the token budget, as a share of each machine's best."""
    figure, rows, said = go.Figure(), [], []
    for index, (name, sweep) in enumerate(sweeps.items()):
        speeds = {budget: report.output_tokens_per_s for budget, report in sweep.items()}
        best = max(speeds.values())
        shares = [100 * speed / best for speed in speeds.values()]
        figure.add_scatter(x=list(speeds), y=shares, name=name, **marked(index))
        enough = min(budget for budget, speed in speeds.items() if speed >= 0.95 * best)
        rows += [
            {
                "machine": name,
                "budget": budget,
                "tokens/s": round(speed),
                "of its best (%)": round(100 * speed / best, 1),
            }
            for budget, speed in speeds.items()
        ]
        said.append(f"{name} reaches 95 % of its best from {enough} tokens on")
    figure.add_hline(y=95, line=line(0) | {"color": style.INK, "width": 1.5, "dash": "dash"})
    figure.update_xaxes(title="token budget of a step", type="log", tickvals=TICKS[4:])
    figure.update_yaxes(title="tokens/s, % of the best (simulated)", range=[0, 106])
    alt = f"Throughput over the token budget, simulated. {'; '.join(said)}."
    show(finish(figure, "How large a step has to be", alt, rows, 360))
