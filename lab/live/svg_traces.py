"""Bars, lines and markers of a still picture."""

from __future__ import annotations

import math
from typing import Any

from lab.live.style import POLICY_COLORS
from lab.live.svg_axes import Axis, values

#: strokes and gaps of plotly's dashes; others are written out, as in "12px,3px"
DASHES = {"dash": "6 4", "dot": "2 3", "dashdot": "6 3 2 3", "longdash": "10 4", "longdashdot": "10 3 2 3"}
SYMBOLS = {
    "square": "M-4-4h8v8h-8z",
    "diamond": "M0-5.5L5.5 0 0 5.5-5.5 0z",
    "cross": "M-1.6-5h3.2v3.4H5v3.2H1.6V5h-3.2V1.6H-5v-3.2h3.4z",
    "triangle-up": "M0-5L5 4H-5z",
    "x": "M-4.5-2.5l2-2L0-2l2.5-2.5 2 2L2 0l2.5 2.5-2 2L0 2l-2.5 2.5-2-2L-2 0z",
}


class Traces:
    """The part of a picture that draws data. Its other half has axes, layout, traces, the output and the hatches."""

    axes: dict[str, Axis]
    layout: dict[str, Any]
    traces: list[dict[str, Any]]
    out: list[str]
    hatches: dict[str, str]

    def bars(self) -> None:
        bars = [trace for trace in self.traces if trace.get("type") == "bar"]
        mode = self.layout.get("barmode", "group")
        stacks: dict[tuple, float] = {}
        for index, trace in enumerate(bars):
            xaxis, yaxis = self._pair(trace)
            flat = trace.get("orientation") == "h"
            along, across = (xaxis, yaxis) if flat else (yaxis, xaxis)
            lengths, places = (values(trace.get(name)) for name in (("x", "y") if flat else ("y", "x")))
            mates = [b for b in bars if b.get("xaxis", "x") == trace.get("xaxis", "x")] if mode == "group" else [trace]
            step = across.spacing([place for bar in mates for place in values(bar.get("y" if flat else "x"))])
            room = step * (1 - self.layout.get("bargap", 0.2)) / len(mates)
            rank = next(i for i, bar in enumerate(mates) if bar is trace)
            for i, (length, place) in enumerate(zip(lengths, places, strict=False)):
                thick = each(trace.get("width"), i, room)
                offset = each(trace.get("offset"), i, room * (rank - len(mates) / 2) if mode == "group" else -thick / 2)
                base = each(trace.get("base"), i, 0.0)
                if mode in ("stack", "relative") and trace.get("base") is None:
                    key = (trace.get("xaxis"), trace.get("yaxis"), place)
                    base = stacks.get(key, 0.0)
                    stacks[key] = base + (length or 0)
                self._bar(trace, index, i, flat, along, across, (base, length, across.number(place) + offset, thick))

    def _bar(self, trace: Any, index: int, i: int, flat: bool, along: Axis, across: Axis, box: tuple) -> None:
        base, length, start, thick = box
        if length is None:
            return
        a0, a1 = sorted((along.place(base), along.place(base + length)))
        c0, c1 = sorted((across.at(start), across.at(start + thick)))
        a0, a1, c0, c1 = (round(pixel, 1) for pixel in (a0, a1, c0, c1))  # neighbours meet
        x, y, w, h = (a0, c0, a1 - a0, c1 - c0) if flat else (c0, a0, c1 - c0, a1 - a0)
        if length:
            fill = self.fill(trace, index, i)
            self.out.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(w, 0.4):.1f}" height="{max(h, 0.4):.1f}" fill="{fill}" '
                'shape-rendering="crispEdges"/>'
            )
        text = each(trace.get("text"), i, "")
        if text and flat:
            self.say(x + w + 5, y + h / 2 + 4, str(text))
        elif text:
            self.say(x + w / 2, y - 5, str(text), "middle")

    def fill(self, trace: dict[str, Any], index: int, i: int = 0) -> str:
        marker = trace.get("marker") or {}
        color = each(marker.get("color"), i, None) or POLICY_COLORS[index % len(POLICY_COLORS)]
        if not each((marker.get("pattern") or {}).get("shape"), i, ""):
            return color
        name = self.hatches.setdefault(color, f"hatch{len(self.hatches)}")
        return f"url(#{name})"

    def scatter(self, trace: dict[str, Any]) -> None:
        xaxis, yaxis = self._pair(trace)
        line, marker = trace.get("line") or {}, trace.get("marker") or {}
        color = line.get("color") or each(marker.get("color"), 0, None) or POLICY_COLORS[self.traces.index(trace) % 6]
        mode = trace.get("mode") or "lines"
        pairs = zip(values(trace.get("x")), values(trace.get("y")), strict=False)
        points = [(xaxis.place(x), yaxis.place(y)) for x, y in pairs if x is not None and y is not None]
        points = [point for point in points if all(map(math.isfinite, point))]
        if "lines" in mode and len(points) > 1:
            if line.get("shape") in ("hv", "vh"):
                points = _stairs(points, line["shape"])
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            if trace.get("fill") == "tozeroy":
                area = f"{path}L{points[-1][0]:.1f} {yaxis.place(0):.1f}L{points[0][0]:.1f} {yaxis.place(0):.1f}Z"
                fill = (
                    f'fill="{trace["fillcolor"]}"' if trace.get("fillcolor") else f'fill="{color}" fill-opacity=".12"'
                )
                self.out.append(f'<path d="{area}" {fill}/>')
            dash = dashes(line.get("dash"))
            extra = f'stroke-dasharray="{dash}"' if dash else ""
            self.out.append(
                f'<path d="{path}" fill="none" stroke="{color}" stroke-width="{line.get("width", 2)}" {extra}/>'
            )
        if "markers" in mode:
            for i, (x, y) in enumerate(points):
                self.marker(x, y, marker, i, color)
        if "text" in mode:
            for i, (x, y) in enumerate(points):
                self.say(x, y - 9, str(each(trace.get("text"), i, "")), "middle")

    def marker(self, x: float, y: float, marker: dict[str, Any], i: int, color: str) -> None:
        fill, size = each(marker.get("color"), i, color), each(marker.get("size"), i, 7)
        fill += f'" fill-opacity="{marker["opacity"]}' if marker.get("opacity") else ""
        path = SYMBOLS.get(str(each(marker.get("symbol"), i, "circle")))
        if path is None:
            self.out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size / 2:.1f}" fill="{fill}"/>')
        else:
            place = f"translate({x:.1f} {y:.1f}) scale({size / 9:.2f})"
            self.out.append(f'<path d="{path}" transform="{place}" fill="{fill}"/>')


def dashes(name: str | None) -> str | None:
    """`stroke-dasharray` of a plotly dash; None for a solid line."""
    own = name.replace("px", "").replace(",", " ") if name and name[0].isdigit() else None
    return DASHES.get(name or "solid", own)


def each(value: Any, i: int, default: Any) -> Any:
    """The i-th of a list, the value itself if it is none, the default for None."""
    if isinstance(value, dict | list | tuple) or hasattr(value, "__len__") and not isinstance(value, str):
        items = values(value)
        value = items[i] if i < len(items) else None
    return default if value is None else value


def _stairs(points: list[tuple[float, float]], shape: str) -> list[tuple[float, float]]:
    out = points[:1]
    for x, y in points[1:]:
        out += [(x, out[-1][1]) if shape == "hv" else (out[-1][0], y), (x, y)]
    return out
