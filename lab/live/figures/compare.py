"""Several runs beside one another, one small chart per metric."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lab.errors import BadPolicy
from lab.live import style
from lab.live.figures.base import AT_THE_EDGE, Runs, clock_of, finish, names_down, reports_of, said
from lab.live.names import counted, literal, spelled

#: name -> label, unit, how to read it from a report, and whether more is better (None: neither)
METRICS: dict[str, tuple[str, str, Any, bool | None]] = {
    "output_tokens_per_s": ("output tokens", "tokens/s", lambda r: r.output_tokens_per_s, True),
    "ttft_p50": ("TTFT, median", "s", lambda r: r.ttft_s.p50, False),
    "ttft_p95": ("TTFT, p95", "s", lambda r: r.ttft_s.p95, False),
    "tpot_p50": ("TPOT, median", "s", lambda r: r.tpot_s.p50, False),
    "itl_p95": ("ITL, p95", "s", lambda r: r.itl_s.p95, False),
    "e2e_p50": ("end to end, median", "s", lambda r: r.e2e_s.p50, False),
    "goodput_rps": ("goodput", "requests/s", lambda r: r.goodput_rps, True),
    "waste": ("wasted work", "%", lambda r: 100 * r.padded_tokens / max(1, r.padded_tokens + r.computed_tokens), False),
    "kv_waste": ("empty KV slots", "%", lambda r: None if r.kv_waste is None else 100 * r.kv_waste, False),
    "mean_batch": ("requests per step", "", lambda r: r.mean_batch, None),
    "preemptions": ("preemptions", "", lambda r: r.preemptions, False),
    "mfu": ("MFU", "%", lambda r: None if r.mfu is None else 100 * r.mfu, True),
    "mbu": ("MBU", "%", lambda r: None if r.mbu is None else 100 * r.mbu, True),
}
COMMON = ("output_tokens_per_s", "ttft_p50", "ttft_p95", "waste")
PANELS = 4  # side by side; more metrics go into rows
PANELS_PX, BETWEEN_PX, ROW_PX = 500, 96, 34  # all panels of a row; between rows; per policy


def comparison(runs: Runs, metrics: Sequence[str] = COMMON, title: str | None = None) -> go.Figure:
    """Policies down, metrics across: a bar each, every metric on its own scale from 0; the best is marked by a star.

    Raises BadPolicy for a metric that METRICS does not have.
    """
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise BadPolicy(f"no metric {', '.join(unknown)}; there are {', '.join(METRICS)}")
    reports = reports_of(runs)
    heads = [label + (f" ({unit})" if unit else "") for label, unit, *_ in (METRICS[m] for m in metrics)]
    columns = min(PANELS, len(metrics))
    rows = -(-len(metrics) // max(1, columns))
    plots = ROW_PX * len(reports) * rows + BETWEEN_PX * (rows - 1)
    figure = make_subplots(
        rows,
        columns,
        subplot_titles=_wrapped(heads, columns),
        shared_yaxes=True,
        horizontal_spacing=0.03,
        vertical_spacing=BETWEEN_PX / plots if rows > 1 else None,
    )
    table: list[dict[str, Any]] = [{"run": name} for name in reports]
    for place, (metric, head) in enumerate(zip(metrics, heads, strict=True)):
        values = [METRICS[metric][2](report) for report in reports.values()]
        for row, value in zip(table, values, strict=True):
            row[head] = value
        cell = {"row": place // columns + 1, "col": place % columns + 1}
        _bars(figure, list(reports), values, METRICS[metric], cell)
        top = max([value or 0 for value in values], default=0) or 1
        figure.update_xaxes(range=[0, (1.6 if columns < 4 else 1.9) * top], nticks=4, **cell)
    names_down(figure, list(reports))
    clock = clock_of(reports.values())
    layout = {"bargap": 0.3, "barmode": "overlay", "showlegend": False, **AT_THE_EDGE}
    title = title or f"{_title(list(reports))} ({clock})"
    return finish(figure, title, _alt(table, clock), table, 110 + plots, **layout)


def _bars(figure: go.Figure, names: list[str], values: list, metric: tuple[str, str, Any, Any], cell: dict) -> None:
    best = _best(values, metric[3])
    figure.add_bar(
        orientation="h",
        y=list(range(len(names))),
        x=[value or 0 for value in values],
        marker={"color": [style.policy_color(index) for index in range(len(names))]},
        text=[style.number(value) + (" ★" if best is not None and value == best else "") for value in values],
        textposition="outside",
        cliponaxis=False,
        showlegend=False,
        hovertext=_words(names, values, metric),
        hoverinfo="text",
        **cell,
    )


compare_bars = comparison


def _best(values: Sequence[float | None], more: bool | None) -> float | None:
    """The best of several different values."""
    known = [value for value in values if value is not None]
    if more is None or len(set(known)) < 2:
        return None
    return max(known) if more else min(known)


def _words(
    names: Sequence[str], values: Sequence[float | None], metric: tuple[str, str, Any, bool | None]
) -> list[str]:
    label, unit, _, more = metric
    best, texts = _best(values, more), []
    for name, value in zip(names, values, strict=True):
        text = f"{spelled(name)}<br>{label}: {said(value, unit)}"
        if best is not None and value is not None:
            ratio = f"{value / best:.2f} × the best" if best else f"the best has {said(best, unit)}"
            text += "<br>the best of these" if value == best else f"<br>{ratio}"
        texts.append(text if value is not None else f"{spelled(name)}<br>{label}: not known for this run")
    return texts


def _alt(table: list[dict[str, Any]], clock: str) -> str:
    heads = [head for head in table[0] if head != "run"] if table else []
    parts = [f"{head}: " + ", ".join(f"{row['run']} {said(row[head])}" for row in table) for head in heads]
    return f"{counted(len(table), 'run')} compared ({clock}). " + "; ".join(parts) + "."


def _wrapped(heads: Sequence[str], columns: int) -> list[str]:
    """Titles of panels in as many lines as their width needs; of many panels the unit stands in a line of its own."""
    most = max(12, int(PANELS_PX / max(1, columns) / 7.5))
    parts = [head.partition(" (") if columns > 3 else (head, "", "") for head in heads]
    return ["<br>".join([*wrap(label, most), *([f"({unit}"] if unit else [])]) for label, _, unit in parts]


def _title(names: Sequence[str]) -> str:
    joined = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return literal(joined) if len(names) < 4 and len(joined) <= 80 else counted(len(names), "policy", "policies")
