"""Axes of a still picture: from values of a plotly figure to pixels, and the ticks to print."""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

from lab.live.names import plain

_TYPES = {
    "f8": "d",
    "f4": "f",
    "i4": "i",
    "i2": "h",
    "i1": "b",
    "u1": "B",
    "u2": "H",
    "u4": "I",
    "i8": "q",
    "u8": "Q",
}


def values(data: Any) -> list[Any]:
    """A plotly array as a list: plain, numpy, or the base64 form plotly makes of numpy arrays."""
    if data is None:
        return []
    if isinstance(data, dict) and "bdata" in data:
        raw = base64.b64decode(data["bdata"])
        code = _TYPES[data["dtype"]]
        return list(struct.unpack(f"<{len(raw) // struct.calcsize(code)}{code}", raw))
    return data.tolist() if hasattr(data, "tolist") else list(data)


class Axis:
    """One axis. `low` and `high` are pixels of its ends, `full` those of the whole plotting area."""

    def __init__(self, name: str, spec: dict[str, Any], data: list[Any], full: tuple[float, float]):
        self.vertical = name.startswith("y")
        self.full = full
        start, end = spec.get("domain") or (0.0, 1.0)
        self.low = full[0] + (full[1] - full[0]) * start
        self.high = full[0] + (full[1] - full[0]) * end
        title = spec.get("title")
        self.title = str((title.get("text") or "") if isinstance(title, dict) else title or "")
        anchor = spec.get("anchor")
        self.anchor = anchor if anchor not in (None, "free") else ("x" if self.vertical else "y") + name[1:]
        self.shown = spec.get("showticklabels", True) is not False
        self.spec = spec
        self.categories = list(dict.fromkeys(map(str, data))) if any(isinstance(v, str) for v in data) else None
        self.log = spec.get("type") == "log"
        self.start, self.end = self._range([v for v in data if v is not None])
        if spec.get("autorange") == "reversed":
            self.start, self.end = self.end, self.start

    def _range(self, data: list[Any]) -> tuple[float, float]:
        if self.spec.get("range"):
            low, high = self.spec["range"]
            return (float(low), float(high))
        if self.categories is not None:
            return (-0.5, len(self.categories) - 0.5)
        numbers = [math.log10(v) if self.log else float(v) for v in data if not self.log or v > 0]
        numbers = [v for v in numbers if math.isfinite(v)] or [0.0, 1.0]
        low, high = min(numbers), max(numbers)
        if self.spec.get("rangemode") in ("tozero", "nonnegative") and not self.log:
            low = min(0.0, low)
        margin = 0.04 * (high - low or abs(high) or 1.0)
        return (low if low == 0 else low - margin, high + margin)

    @property
    def crowded(self) -> bool:
        """Names along the bottom that are too long to stand side by side."""
        if self.vertical or self.categories is None or not self.shown:
            return False
        widest = max(6.6 * len(plain(name)) + 8 for name in self.categories)
        return widest > abs(self.high - self.low) / len(self.categories)

    def number(self, value: Any) -> float:
        """A value as a position on the axis, before the logarithm."""
        if self.categories is not None:
            return float(self.categories.index(str(value))) if str(value) in self.categories else float(value)
        return float(value)

    def at(self, number: float) -> float:
        """Pixel of a number; NaN where a logarithm has none."""
        if self.log:
            number = math.log10(number) if number > 0 else math.nan
        share = (number - self.start) / ((self.end - self.start) or 1.0)
        return self.low + (self.high - self.low) * share

    def place(self, value: Any) -> float:
        """Pixel of a value."""
        place = self.at(self.number(value))
        return self.low if math.isnan(place) and value == 0 else place

    def spacing(self, places: list[Any]) -> float:
        """Smallest distance between different values: the room of a bar."""
        if self.categories is not None:
            return 1.0
        ordered = sorted({float(place) for place in places})
        gaps = [b - a for a, b in zip(ordered, ordered[1:], strict=False)]
        return min(gaps, default=1.0)

    def ticks(self) -> list[tuple[Any, str]]:
        """Values and their labels."""
        if not self.shown:
            return []
        if self.spec.get("tickvals") is not None:
            marks = values(self.spec["tickvals"])
            return list(zip(marks, map(str, values(self.spec.get("ticktext")) or marks), strict=False))
        if self.categories is not None:
            return [(name, name) for name in self.categories]
        low, high = sorted((self.start, self.end))
        if self.log:
            whole = [10.0**power for power in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)]
            marks = (
                whole
                if len(whole) > 2
                else [m * 10.0**p for p in range(math.floor(low), math.ceil(high)) for m in (1, 2, 5)]
            )
            return [(m, _short(m)) for m in marks if low - 1e-9 <= math.log10(m) <= high + 1e-9]
        rough = (high - low) / max(2, abs(self.high - self.low) / (34 if self.vertical else 90))
        power = 10.0 ** math.floor(math.log10(rough or 1.0))
        step = next((f * power for f in (1, 2, 5) if f * power >= rough), 10 * power)
        count = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        return [(i * step, f"{i * step:.10g}") for i in count]


def _short(value: float) -> str:
    """A power of ten for a label: 1M rather than 1e+06."""
    if 1e4 <= value < 1e12:
        unit, letter = next(pair for pair in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if value >= pair[0])
        return f"{value / unit:g}{letter}"
    return f"{value:g}"


def make_axes(traces: list[dict], layout: dict[str, Any], area: tuple[float, float, float, float]) -> dict[str, Axis]:
    """All axes by their trace names (x, y, x2, …). `area` is left, top, right, bottom in pixels."""
    left, top, right, bottom = area
    found: dict[str, list[Any]] = {"x": [], "y": []}
    for trace in traces:
        for direction in "xy":
            found.setdefault(trace.get(f"{direction}axis", direction), []).extend(_extent(trace, direction, layout))
    for shape in layout.get("shapes") or []:
        for direction in "xy":  # a line drawn at a value widens its axis
            name = str(shape.get(f"{direction}ref") or direction)
            found.get(name, []).extend(shape[end] for end in (f"{direction}0", f"{direction}1") if end in shape)
    axes = {}
    for name, data in found.items():
        spec = dict(layout.get(name[0] + "axis" + name[1:]) or {})
        if spec.get("matches") in found:
            data = [*data, *found[spec["matches"]]]
        full = (bottom, top) if name[0] == "y" else (left, right)
        axes[name] = Axis(name, spec, data, full)
    return axes


def _extent(trace: dict[str, Any], direction: str, layout: dict[str, Any]) -> list[Any]:
    """Values of a trace along a direction, for a bar with where it begins and ends."""
    data = values(trace.get(direction))
    if trace.get("type") != "bar":
        return data
    along = "x" if trace.get("orientation") == "h" else "y"
    if direction != along:
        if any(isinstance(value, str) for value in data) or not data:
            return data
        half = (
            0.5
            if len(set(data)) < 2
            else min(b - a for a, b in zip(sorted(set(data)), sorted(set(data))[1:], strict=False)) / 2
        )
        return [*data, min(data) - half, max(data) + half]
    base = trace.get("base")
    if base is not None:
        starts = values(base) if not isinstance(base, int | float) else [base] * len(data)
        return [0.0, *starts, *(a + b for a, b in zip(starts, data, strict=False) if b is not None)]
    if layout.get("barmode") in ("stack", "relative"):
        totals: dict[Any, float] = {}
        other = "y" if along == "x" else "x"
        for mate in layout.get("_bars", [trace]):
            for place, value in zip(values(mate.get(other)), values(mate.get(along)), strict=False):
                totals[place] = totals.get(place, 0.0) + (value or 0.0)
        return [0.0, *totals.values()]
    return [0.0, *(value for value in data if value is not None)]
