"""How much room a legend takes: which traces it names, and in how many lines. For plotly and for still pictures."""

from __future__ import annotations

from typing import Any

from lab.live.names import plain
from lab.live.svg_axes import values

SYMBOL_PX, CHAR_PX = 44, 6.9  # of an entry's symbol and gaps, of a character (13 px sans serif)


def entries(record: dict[str, Any]) -> list[tuple[str, dict[str, Any], int]]:
    """(label, trace, index among bars) of what the legend names, hidden and empty traces left out; [] without one."""
    layout = record.get("layout", {})
    found, seen, bars = [], set(), 0
    for trace in record.get("data", []):
        if trace.get("visible", True) is not True:
            continue
        place, bars = bars, bars + (trace.get("type") == "bar")
        if not values(trace.get("x")):
            continue
        name, group = trace.get("name"), trace.get("legendgroup") or trace.get("name")
        if name and trace.get("showlegend", True) is not False and group not in seen:
            seen.add(group)
            found.append((name, trace, place))
    if layout.get("showlegend") is False or (len(found) < 2 and not layout.get("showlegend")):
        return []
    return found


def rows_of(found: list[tuple[str, dict[str, Any], int]], width: float) -> int:
    """Lines of a horizontal legend: entries follow one another, or stand in equal columns where that is too long."""
    widths = [SYMBOL_PX + CHAR_PX * len(plain(name)) for name, *_ in found]
    if not widths or sum(widths) <= width:
        return int(bool(widths))
    columns = max(1, int(width / max(widths)))
    return -(-len(widths) // columns)
