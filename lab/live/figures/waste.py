"""Work that nobody needed: padding, rows of requests that had ended, tokens computed a second time."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from lab.live import style
from lab.live.figures.base import AT_THE_EDGE, Runs, finish, kind_marker, names_down, reports_of
from lab.live.figures.composition import step_tokens
from lab.live.names import counted, spelled
from lab.metrics import Report

AGAIN = ("computed again after a preemption", {"color": style.YELLOW, "line": {"width": 0}})


def padding_waste(runs: Runs, title: str | None = None) -> go.Figure:
    """Per run, the share of all computed positions that was of use, padding, for ended requests, or repeated."""
    reports = reports_of(runs)
    counts = {name: _counts(report) for name, report in reports.items()}
    looks = {
        "useful": {"color": style.BLUE, "line": {"width": 0}},
        style.KIND["padding"].label: kind_marker(style.KIND["padding"]),
        style.KIND["wasted"].label: kind_marker(style.Kind("wasted", "", "", style.PURPLE, hatched=True)),
        AGAIN[0]: AGAIN[1],
    }
    figure = go.Figure()
    for label, marker in looks.items():
        shares = [100 * parts[label] / max(1, sum(parts.values())) for parts in counts.values()]
        if not any(shares):
            continue
        words = [
            f"{spelled(name)}<br>{parts[label]:,} of {counted(sum(parts.values()), 'computed position')}<br>"
            f"{label} ({share:.1f} %)"
            for (name, parts), share in zip(counts.items(), shares, strict=True)
        ]
        look = {"name": label, "marker": marker, "hovertext": words, "hoverinfo": "text"}
        figure.add_bar(orientation="h", y=list(range(len(counts))), x=shares, **look)
    figure.update_xaxes(title="share of all computed positions (%, counted)", range=[0, 100])
    names_down(figure, list(counts))
    table = [_row(name, parts) for name, parts in counts.items()]
    alt = "Share of computed positions that was of use: "
    alt += ", ".join(f"{row['run']} {_share(row)}" for row in table) + "."
    height = 110 + 40 * len(counts)
    title, layout = title or "How much of the work was needed?", {"barmode": "stack", "bargap": 0.35, **AT_THE_EDGE}
    return finish(figure, title, alt, table, height, **layout)


def _counts(report: Report) -> dict[str, int]:
    """Positions by what became of them. Identity: their sum is computed_tokens + padded_tokens."""
    padding = wasted = 0
    for entry in report.trace.entries():
        _, _, pad, carried = step_tokens(entry, report)
        padding, wasted = padding + pad * entry.repeat, wasted + carried * entry.repeat
    return {
        "useful": report.computed_tokens - report.recomputed_tokens,
        style.KIND["padding"].label: padding,
        style.KIND["wasted"].label: wasted,
        AGAIN[0]: report.recomputed_tokens,
    }


def _row(name: str, parts: dict[str, int]) -> dict[str, Any]:
    total = sum(parts.values())
    return {"run": name, **parts, "all": total, "useful (%)": 100 * parts["useful"] / total if total else None}


def _share(row: dict[str, Any]) -> str:
    share = row["useful (%)"]
    return "0 positions computed" if share is None else f"{share:.0f} %"
