"""What all figures share: the look, the room for title and legend, and the alt text and table each one carries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from lab.live import style
from lab.live.legend import entries, rows_of
from lab.live.names import labels
from lab.metrics import Report
from lab.running import Comparison

Runs = Comparison | Mapping[str, Report] | Report
Table = Sequence[Mapping[str, Any]]
SYMBOLS = ("circle", "diamond", "square", "cross", "triangle-up", "x")
TITLE_PX, LEGEND_PX, HEAD_PX = 34, 21, 18  # heights of a line of title, legend, titles of panels
AT_THE_EDGE = {"title_x": 0.012, "title_xref": "container"}  # a title above long labels starts with them
WIDTH_PX = 760  # narrowest page for which room is left; on wider ones the legend needs fewer lines


def template() -> go.layout.Template:
    """Fonts, colours and grid of every figure; the background is transparent, so that any theme shows through."""
    axis = {"gridcolor": style.GRID, "zerolinecolor": style.GRID, "linecolor": style.GRID, "automargin": True}
    axis["title"] = {"standoff": 8}
    return go.layout.Template(
        layout={
            "font": {"family": style.FONT, "size": 13, "color": style.INK},
            "title": {"font": {"size": 16}, "x": 0, "xref": "paper", "xanchor": "left", "y": 0.97},
            "colorway": list(style.POLICY_COLORS),
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(128,128,128,0.05)",
            "xaxis": axis,
            "yaxis": axis,
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "bgcolor": "rgba(0,0,0,0)"},
            "margin": {"l": 64, "r": 18, "t": 76, "b": 58},
            "annotationdefaults": {"font": {"size": 13}},
            "hoverlabel": {"font": {"family": style.FONT}},
        }
    )


def finish(figure: go.Figure, title: str, alt: str, table: Table, height: int = 340, **layout: Any) -> go.Figure:
    """Dress a figure: look, title, legend; its alt text and its table travel along as `figure.layout.meta`.

    `height` is that of the plots, their axes and the title; legend and titles of panels come on top.
    """
    figure.update_layout(template=template(), title=title, height=height, **layout)
    figure.update_layout(meta={"alt": alt, "table": [dict(row) for row in table]})
    figure.update_annotations(font_size=13, selector={"font": {"size": 16}})  # titles of panels, too large by default
    return arrange(figure, grow=True)


def arrange(figure: go.Figure, grow: bool = False) -> go.Figure:
    """Title, legend and titles of panels below one another, none over another; `grow` adds the room to the height."""
    record = figure.to_plotly_json()
    lines = rows_of(entries(record), WIDTH_PX)
    over = [note for note in figure.layout.annotations if note.yref == "paper" and (note.y or 0) >= 0.999]
    heads = max((1 + note.text.count("<br>") for note in over), default=0)
    title = TITLE_PX if figure.layout.title.text else 8
    top = title + LEGEND_PX * lines + (HEAD_PX * heads + 14 if heads else 14)
    if grow:
        figure.update_layout(height=figure.layout.height + top - TITLE_PX)
    height = figure.layout.height or 450  # plotly's own
    figure.update_layout(
        title={"y": 1 - 8 / height, "yref": "container", "yanchor": "top"},
        legend={"yref": "container", "y": 1 - title / height, "yanchor": "top", "traceorder": "normal"},
        margin={"t": top},
    )
    return figure


def alt_of(figure: go.Figure) -> tuple[str, list[dict[str, Any]]]:
    """(alt text, table) that a figure carries; empty for one made elsewhere."""
    meta = figure.layout.meta
    meta = meta if isinstance(meta, Mapping) else {}
    return str(meta.get("alt", "")), [dict(row) for row in meta.get("table", ())]


def reports_of(runs: Runs) -> dict[str, Report]:
    """Reports by name, whatever they come in."""
    if isinstance(runs, Report):
        return {runs.axes.get("batching", "run"): runs}
    return {str(name): report for name, report in getattr(runs, "reports", runs).items()}


def clock_of(reports: Iterable[Report]) -> str:
    """ "measured", "simulated", or both."""
    return ", ".join(sorted({style.clock_name(report.measured) for report in reports}))


def names_down(figure: go.Figure, names: Sequence[str]) -> None:
    """Policies down the vertical axis, the first on top, bars at 0, 1, …; long names are cut in the middle."""
    ticks = {"tickvals": list(range(len(names))), "ticktext": labels(names)}
    figure.update_yaxes(range=[max(1, len(names)) - 0.5, -0.5], showgrid=False, **ticks)


def nothing(figure: go.Figure, text: str) -> None:
    """Say in an empty picture why it is empty."""
    figure.add_annotation(text=text, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)


def line(index: int, width: float = 2.25) -> dict[str, Any]:
    """How the index-th policy of a comparison is drawn."""
    return {"color": style.policy_color(index), "width": width, "dash": style.policy_dash(index)}


def marked(index: int) -> dict[str, Any]:
    """Line and markers of the index-th policy: its colour is never the only sign."""
    again = index // len(style.POLICY_COLORS)  # how often its colour has been taken
    symbol = {"symbol": SYMBOLS[(index + again) % len(SYMBOLS)], "size": 9, "color": style.policy_color(index)}
    return {"mode": "lines+markers", "line": line(index), "marker": symbol}


def kind_marker(kind: style.Kind) -> dict[str, Any]:
    """Fill of a bar that shows a kind of work."""
    pattern = {"pattern": {"shape": "/", "size": 5, "solidity": 0.45}} if kind.hatched else {}
    return {"color": kind.color, "line": {"width": 0}, **pattern}


def tint(color: str, alpha: float = 0.16) -> str:
    """A see-through colour from one like #0072B2, for areas that lie over one another."""
    return f"rgba({int(color[1:3], 16)},{int(color[3:5], 16)},{int(color[5:7], 16)},{alpha})"


def value_of(report: Any, name: str) -> float | None:
    """A metric by its Report name, "ttft_s.p95" for a percentile; of a Report or of its JSON."""
    for part in name.split("."):
        report = report.get(part) if isinstance(report, Mapping) else getattr(report, part)
        if report is None:
            return None
    return report


def said(value: float | None, unit: str = "") -> str:
    """A number in a sentence."""
    text = f"{value:.3g}" if value is not None and 0 < abs(value) < 1 else style.number(value)
    return text + (f" {unit}" if unit and value is not None else "")


def groups(count: int, most: int = 600) -> list[range]:
    """`count` neighbours in at most `most` groups: what a figure shows of a long run."""
    size = max(1, -(-count // most))
    return [range(i, min(count, i + size)) for i in range(0, count, size)]
