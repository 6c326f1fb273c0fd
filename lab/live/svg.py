"""A plotly figure as a still SVG picture, for pages that cannot run plotly. Covers what this course draws.

Bars (grouped, stacked, with base, offset and width, along either axis, hatched), lines and markers (dashes, steps,
areas), linear, log and category axes, subplots, titles, legends, lines and texts on top. Anything else is left out,
and `left_out` says so.
"""

from __future__ import annotations

from html import escape
from typing import Any

from lab.live.style import FONT, GRID, INK
from lab.live.svg_axes import Axis, make_axes
from lab.live.svg_traces import DASHES, Traces, each


def left_out(figure: dict[str, Any]) -> list[str]:
    """Kinds of traces this writer does not draw."""
    return sorted({trace.get("type", "scatter") for trace in figure.get("data", [])} - {"bar", "scatter", "scattergl"})


def to_svg(figure: dict[str, Any], alt: str, width: int = 860, height: int | None = None) -> str:
    """The picture as an `<svg>` element with `alt` as its accessible name. `figure` is `Figure.to_plotly_json()`."""
    return _Picture(figure, alt, width, height).draw()


class _Picture(Traces):
    def __init__(self, figure: dict[str, Any], alt: str, width: int, height: int | None):
        self.layout = figure.get("layout", {})
        self.alt = alt
        self.traces = [trace for trace in figure.get("data", []) if trace.get("visible", True) is True]
        self.width, self.height = width, int(height or self.layout.get("height") or 360)
        title = _text(self.layout.get("title"))
        entries = self._legend_entries()
        top = 18 + (26 if title else 0) + (22 * self._legend_lines(entries) if entries else 0)
        top += 14 if self.layout.get("annotations") else 0
        self.axes = make_axes(self.traces, self.layout, (64, top, self.width - 18, self.height - 48))
        self.title, self.entries = title, entries
        self.out: list[str] = []
        self.hatches: dict[str, str] = {}

    def draw(self) -> str:
        for axis in self.axes.values():
            self._axis(axis)
        self.bars()
        for trace in self.traces:
            if trace.get("type", "scatter") != "bar":
                self.scatter(trace)
        for shape in self.layout.get("shapes") or []:
            self._shape(shape)
        for note in self.layout.get("annotations") or []:
            self._annotation(note)
        self._head()
        hatches = "".join(
            f'<pattern id="{name}" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            f'<rect width="5" height="5" fill="{color}" fill-opacity=".28"/>'
            f'<rect width="1.8" height="5" fill="{color}"/></pattern>'
            for color, name in self.hatches.items()
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'role="img" aria-label="{escape(self.alt)}" style="max-width:100%;height:auto" '
            f'font-family="{escape(FONT)}" font-size="12" fill="{INK}">'
            f"<title>{escape(self.alt)}</title><defs>{hatches}</defs>" + "".join(self.out) + "</svg>"
        )

    # -- pieces ----------------------------------------------------------------------------------------------
    def say(self, x: float, y: float, text: str, anchor: str = "start", extra: str = "") -> None:
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{_plain(text)}</text>')

    def _line(self, x0: float, y0: float, x1: float, y1: float, color: str = GRID, extra: str = "") -> None:
        self.out.append(f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="{color}" fill="none" {extra}/>')

    def _axis(self, axis: Axis) -> None:
        other = self.axes[axis.anchor]
        for value, label in axis.ticks():
            place = axis.place(value)
            if axis.vertical:
                self._line(other.low, place, other.high, place)
                self.say(min(other.low, other.high) - 7, place + 4, label, "end")
            else:
                self._line(place, other.low, place, other.high)
                self.say(place, max(other.low, other.high) + 16, label, "middle")
        if not axis.title:
            return
        if axis.vertical:
            x, y = min(other.low, other.high) - 50, (axis.low + axis.high) / 2
            self.say(x, y, axis.title, "middle", f'transform="rotate(-90 {x:.1f} {y:.1f})"')
        else:
            self.say((axis.low + axis.high) / 2, max(other.low, other.high) + 36, axis.title, "middle")

    def _pair(self, trace: dict[str, Any]) -> tuple[Axis, Axis]:
        return self.axes[trace.get("xaxis", "x")], self.axes[trace.get("yaxis", "y")]

    def _shape(self, shape: dict[str, Any]) -> None:
        ends = [self._spot(shape, "x", "x0"), self._spot(shape, "y", "y0")]
        ends += [self._spot(shape, "x", "x1"), self._spot(shape, "y", "y1")]
        line = shape.get("line") or {}
        if shape.get("type") == "line" and None not in ends:
            dash = DASHES.get(line.get("dash", "solid"))
            self._line(*ends, line.get("color", INK), f'stroke-dasharray="{dash}"' if dash else "")

    def _spot(self, item: dict[str, Any], direction: str, key: str) -> float | None:
        reference = str(item.get(f"{direction}ref") or direction)
        if reference == "paper":
            low, high = (self.axes[direction].full for _ in range(2))
            return low[0] + (high[1] - low[0]) * item[key]
        name, domain, _ = reference.partition(" domain")
        axis = self.axes.get(name)
        if axis is None:
            return None
        return axis.low + (axis.high - axis.low) * item[key] if domain else axis.place(item[key])

    def _annotation(self, note: dict[str, Any]) -> None:
        x, y = self._spot(note, "x", "x"), self._spot(note, "y", "y")
        if x is not None and y is not None:
            anchor = {"left": "start", "right": "end"}.get(note.get("xanchor"), "middle")
            up = 5 if note.get("yanchor") == "bottom" else -4
            self.say(x + (note.get("xshift") or 0), y - up - (note.get("yshift") or 0), note.get("text", ""), anchor)

    # -- title and legend ------------------------------------------------------------------------------------
    def _legend_entries(self) -> list[tuple[str, dict[str, Any], int]]:
        entries, seen, bars = [], set(), 0
        for trace in self.traces:
            place, bars = bars, bars + (trace.get("type") == "bar")
            name, group = trace.get("name"), trace.get("legendgroup") or trace.get("name")
            if name and trace.get("showlegend", True) is not False and group not in seen:
                seen.add(group)
                entries.append((name, trace, place))
        if self.layout.get("showlegend") is False or (len(entries) < 2 and not self.layout.get("showlegend")):
            return []
        return entries

    def _legend_lines(self, entries: list) -> int:
        return 1 + int(sum(34 + 7 * len(name) for name, *_ in entries) / (self.width - 80))

    def _head(self) -> None:
        if self.title:
            self.say(64, 26, self.title, extra='font-size="15" font-weight="600"')
        x, y = 64.0, 50.0 if self.title else 24.0
        for name, trace, index in self.entries:
            if x + 34 + 7 * len(name) > self.width and x > 64:
                x, y = 64.0, y + 22
            if trace.get("type") == "bar":
                self.out.append(f'<rect x="{x}" y="{y - 9}" width="16" height="10" fill="{self.fill(trace, index)}"/>')
            else:
                line, marker = trace.get("line") or {}, trace.get("marker") or {}
                color = line.get("color") or each(marker.get("color"), 0, None) or INK
                dash = DASHES.get(line.get("dash", "solid"))
                if "lines" in (trace.get("mode") or "lines"):
                    style = f'stroke-width="2" stroke-dasharray="{dash or "none"}"'
                    self._line(x, y - 4, x + 16, y - 4, color, style)
                if "markers" in (trace.get("mode") or ""):
                    self.marker(x + 8, y - 4, marker | {"size": 8}, 0, color)
            self.say(x + 22, y, name)
            x += 34 + 7 * len(name)


def _text(title: Any) -> str:
    return str((title.get("text") or "") if isinstance(title, dict) else title or "")


def _plain(text: str) -> str:
    """Text for SVG: plotly's own markup is dropped."""
    for tag in ("<b>", "</b>", "<i>", "</i>"):
        text = text.replace(tag, "")
    return escape(text.replace("<br>", " "))
