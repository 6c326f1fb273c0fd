"""A picture made by hand: boxes, lines and words, with a name for those who cannot see it.

It is shown as a plotly figure, which JupyterLab draws in any notebook, and as SVG, which pages without a kernel take.
"""

from __future__ import annotations

from html import escape
from typing import Any, NamedTuple

import plotly.graph_objects as go

from lab.live.show import as_text
from lab.live.style import FONT, INK

WIDTH = 860
PLACES = {"start": "middle right", "middle": "middle center"}


class Look(NamedTuple):
    """Fill and border of shapes; `faint` fills are hatched in the SVG and pale in plotly."""

    fill: str
    line: str
    dashed: bool = False
    faint: bool = False


class Words(NamedTuple):
    """How words look."""

    anchor: str
    size: int
    color: str
    bold: bool


class Page:
    """Collects shapes; its height grows with what is drawn. Colours are readable on light and dark.

    Shapes of one look are one path and words of one look one group, so that hundreds of boxes stay small.
    """

    def __init__(self, width: int = WIDTH):
        self.width, self.height = width, 0.0
        self.shapes: dict[Look, list[str]] = {}
        self.words: dict[Words, list[tuple[float, float, str]]] = {}

    def text(
        self,
        x: float,
        y: float,
        words: str,
        anchor: str = "start",
        size: int = 12,
        bold: bool = False,
        color: str = INK,
    ) -> None:
        """One line of text, its baseline at y."""
        self.words.setdefault(Words(anchor, size, color, bold), []).append((round(x, 1), round(y, 1), words))
        self.height = max(self.height, y + 6)

    def box(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        fill: str = "none",
        line: str = INK,
        dashed: bool = False,
        faint: bool = False,
    ) -> None:
        """A rectangle, with a border unless `line` is "none"."""
        path = f"M{x:.1f} {y:.1f}H{x + w:.1f}V{y + h:.1f}H{x:.1f}Z"
        self.shapes.setdefault(Look(fill, line, dashed, faint), []).append(path)
        self.height = max(self.height, y + h + 2)

    def line(self, x0: float, y0: float, x1: float, y1: float, color: str = INK) -> None:
        """A soft curve from left to right."""
        bend = (x0 + x1) / 2
        path = f"M{x0:.1f} {y0:.1f}C{bend:.1f} {y0:.1f} {bend:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
        self.shapes.setdefault(Look("none", color), []).append(path)

    def svg(self, alt: str) -> str:
        """The picture, with `alt` as its accessible name."""
        faint = {look.fill: f"hatch{place}" for place, look in enumerate(self.shapes) if look.faint}
        patterns = "".join(
            f'<pattern id="{name}" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            f'<rect width="5" height="5" fill="{color}" fill-opacity=".22"/>'
            f'<rect width="1.6" height="5" fill="{color}" fill-opacity=".8"/></pattern>'
            for color, name in faint.items()
        )
        drawn = ""
        for look, paths in self.shapes.items():
            fill = f"url(#{faint[look.fill]})" if look.faint else look.fill
            dash = ' stroke-dasharray="4 3"' if look.dashed else ""
            path = "".join(paths)
            drawn += f'<path fill="{fill}" stroke="{look.line}"{dash} d="{path}"/>'
        for look, words in self.words.items():
            weight = ' font-weight="600"' if look.bold else ""
            texts = "".join(f'<text x="{x:g}" y="{y:g}">{escape(word)}</text>' for x, y, word in words)
            drawn += f'<g text-anchor="{look.anchor}" font-size="{look.size}" fill="{look.color}"{weight}>{texts}</g>'
        height = int(self.height + 4)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {height}" width="{self.width}" '
            f'height="{height}" role="img" aria-label="{escape(alt)}" font-family="{escape(FONT)}" font-size="12">'
            f"<title>{escape(alt)}</title><defs>{patterns}</defs>{drawn}</svg>"
        )

    def figure(self) -> go.Figure:
        """The same as a plotly figure, one unit a pixel."""
        figure = go.Figure()
        for look, words in self.words.items():
            figure.add_scatter(
                x=[x for x, *_ in words],
                y=[y - 0.36 * look.size for _, y, _ in words],
                text=[f"<b>{escape(word)}</b>" if look.bold else escape(word) for *_, word in words],
                mode="text",
                textposition=PLACES[look.anchor],
                textfont={"size": look.size, "color": look.color},
                hoverinfo="skip",
            )
        clear = "rgba(0,0,0,0)"
        for look, paths in self.shapes.items():
            line = {"color": clear if look.line == "none" else look.line, "width": 1}
            figure.add_shape(
                type="path",
                path="".join(paths),
                fillcolor=clear if look.fill == "none" else pale(look.fill) if look.faint else look.fill,
                line=line | ({"dash": "4px,3px"} if look.dashed else {}),
                layer="below",
            )
        height = int(self.height + 4)
        hidden = {"visible": False, "fixedrange": True}
        figure.update_xaxes(range=[0, self.width], **hidden)
        figure.update_yaxes(range=[height, 0], **hidden)
        figure.update_layout(width=self.width, height=height, margin={"l": 0, "r": 0, "t": 0, "b": 0})
        return figure.update_layout(
            showlegend=False, paper_bgcolor=clear, plot_bgcolor=clear, font={"family": FONT}, dragmode=False
        )


def pale(color: str) -> str:
    """The colour #rrggbb, mostly see-through."""
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.28)"


def show_page(page: Page, alt: str, twin: Any) -> None:
    """Display the picture with its text twin; in a terminal, print the twin."""
    import json

    text = f"{alt}\n{as_text(twin)}"
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        get_ipython = None
    if get_ipython is None or get_ipython() is None:
        print(text)
        return
    record = json.loads(page.figure().to_json())
    record["layout"].pop("template", None)
    record["config"] = {"displayModeBar": False, "responsive": False}
    data = {"application/vnd.plotly.v1+json": record, "image/svg+xml": page.svg(alt), "text/plain": text}
    display(data, metadata={"image/svg+xml": {"alt": alt}}, raw=True)
