"""A plotly figure as a still SVG picture, for pages that cannot run plotly. Covers what this course draws.

Bars (grouped, stacked, with base, offset and width, along either axis, hatched), lines and markers (dashes, steps,
areas), linear, log and category axes, subplots, titles, legends, lines and texts on top. Anything else is left out,
and `left_out` says so.
"""

from __future__ import annotations

from html import escape
from typing import Any

from lab.live.legend import entries, rows_of
from lab.live.names import plain
from lab.live.style import FONT, GRID, INK
from lab.live.svg_axes import Axis, make_axes
from lab.live.svg_traces import Traces, dashes, each

LINE_PX = 22  # height of a line of the legend


def text_px(text: str) -> float:
    """About how wide a text is."""
    return 6.6 * len(plain(text))


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
        self.title, self.entries = title, entries(figure)
        self.area = self._area()
        self.axes = make_axes(self.traces, self.layout, self.area)
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

    def _area(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom of the plots in pixels, with room for labels, title, legend and titles of panels."""
        heads = [note for note in self.layout.get("annotations") or [] if note.get("yref") == "paper"]
        heads = [1 + note["text"].count("<br>") for note in heads if note.get("y", 0) >= 0.999]
        top = 18 + (26 if self.title else 0) + LINE_PX * rows_of(self.entries, self.width - 80)
        top += 15 * max(heads) + 6 if heads else 0
        margin = self.layout.get("margin") or {}
        bottom = self.height - max(48, (margin.get("b") or 0))
        axes = make_axes(self.traces, self.layout, (64, top, self.width - 18, bottom))
        across = next(axis for name, axis in axes.items() if not axis.vertical)
        edge = [axis for axis in axes.values() if axis.vertical and axes[axis.anchor].low <= across.full[0] + 1]
        left = max(self._room(axis) for axis in edge) if edge else 64
        slanted = any(axis.crowded for axis in axes.values())
        return (max(64, left), top, self.width - 18, bottom - (36 if slanted else 0))

    def _room(self, axis: Axis) -> float:
        """Pixels that labels and title of a vertical axis need."""
        labels = max((text_px(label) for _, label in axis.ticks()), default=0)
        return labels + (34 if axis.title else 14)

    # -- pieces ----------------------------------------------------------------------------------------------
    def say(self, x: float, y: float, text: str, anchor: str = "start", extra: str = "") -> None:
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{escape(plain(text))}</text>')

    def _line(self, x0: float, y0: float, x1: float, y1: float, color: str = GRID, extra: str = "") -> None:
        self.out.append(f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="{color}" fill="none" {extra}/>')

    def _axis(self, axis: Axis) -> None:
        other = self.axes[axis.anchor]
        for value, label in axis.ticks():
            place = axis.place(value)
            color = GRID if axis.spec.get("showgrid", True) is not False else "none"
            if axis.vertical:
                self._line(other.low, place, other.high, place, color)
                self.say(min(other.low, other.high) - 7, place + 4, label, "end")
            elif axis.crowded:
                y = max(other.low, other.high) + 14
                self._line(place, other.low, place, other.high, color)
                self.say(place + 4, y, label, "end", f'transform="rotate(-25 {place + 4:.1f} {y:.1f})"')
            else:
                self._line(place, other.low, place, other.high, color)
                self.say(place, max(other.low, other.high) + 16, label, "middle")
        if not axis.title:
            return
        if axis.vertical:
            x, y = min(other.low, other.high) - self._room(axis) + 14, (axis.low + axis.high) / 2
            self.say(x, y, axis.title, "middle", f'transform="rotate(-90 {x:.1f} {y:.1f})"')
        else:
            below = 36 + (36 if axis.crowded else 0)
            self.say((axis.low + axis.high) / 2, max(other.low, other.high) + below, axis.title, "middle")

    def _pair(self, trace: dict[str, Any]) -> tuple[Axis, Axis]:
        return self.axes[trace.get("xaxis", "x")], self.axes[trace.get("yaxis", "y")]

    def _shape(self, shape: dict[str, Any]) -> None:
        ends = [self._spot(shape, "x", "x0"), self._spot(shape, "y", "y0")]
        ends += [self._spot(shape, "x", "x1"), self._spot(shape, "y", "y1")]
        line = shape.get("line") or {}
        if shape.get("type") == "line" and None not in ends:
            dash = dashes(line.get("dash"))
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
            up = {"bottom": 5, "top": -12}.get(note.get("yanchor"), -4)
            x, y = x + (note.get("xshift") or 0), y - up - (note.get("yshift") or 0)
            lines = note.get("text", "").split("<br>")
            size = (note.get("font") or {}).get("size")
            for place, text in enumerate(lines):
                over = 15 * (-place if note.get("yanchor") == "top" else len(lines) - 1 - place)
                self.say(x, y - over, text, anchor, f'font-size="{size}"' if size else "")

    # -- title and legend ------------------------------------------------------------------------------------
    def _head(self) -> None:
        if self.title:
            self.say(14, 26, self.title, extra='font-size="15" font-weight="600"')
        top, left, room = (50.0 if self.title else 24.0), 14.0, self.width - 80
        lines = rows_of(self.entries, room)
        columns = -(-len(self.entries) // max(1, lines))
        x, y = left, top
        for place, (name, trace, index) in enumerate(self.entries):
            if lines > 1:
                x, y = left + place % columns * (self.width - 28) / columns, top + place // columns * LINE_PX
            self._key(trace, index, x, y)
            self.say(x + 22, y, name)
            x += 36 + text_px(name)

    def _key(self, trace: dict[str, Any], index: int, x: float, y: float) -> None:
        """The symbol of a legend entry."""
        if trace.get("type") == "bar":
            self.out.append(f'<rect x="{x}" y="{y - 9}" width="16" height="10" fill="{self.fill(trace, index)}"/>')
            return
        line, marker = trace.get("line") or {}, trace.get("marker") or {}
        color = line.get("color") or each(marker.get("color"), 0, None) or INK
        if trace.get("fillcolor"):
            self.out.append(f'<rect x="{x}" y="{y - 9}" width="16" height="10" fill="{trace["fillcolor"]}"/>')
        if "lines" in (trace.get("mode") or "lines"):
            dash = dashes(line.get("dash"))
            style = f'stroke-width="2" stroke-dasharray="{dash or "none"}"'
            self._line(x, y - 4, x + 16, y - 4, color, style)
        if "markers" in (trace.get("mode") or ""):
            self.marker(x + 8, y - 4, marker | {"size": min(8, each(marker.get("size"), 0, 8))}, 0, color)


def _text(title: Any) -> str:
    return str((title.get("text") or "") if isinstance(title, dict) else title or "")
