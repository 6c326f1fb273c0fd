"""Requests × time of one policy as a small SVG picture."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from lab.live import stills, style

if TYPE_CHECKING:
    from lab.live.session import Session

WIDTH, GUTTER, PITCH = 860, 40, 7
ROWS = 40  # requests of a policy that are drawn, those that arrived last


def lane_svg(session: Session, index: int, state: dict[str, Any], end: float) -> str:
    """Requests × time of one policy as SVG; empty before it begins."""
    news = next((lane for lane in state["lanes"] if lane["lane"] == index), None)
    if news is None:
        return ""
    name, rows = list(session.runs)[index], sorted(news["rows"], key=lambda row: (row[1], row[0]))[-ROWS:]
    height = 26 + PITCH * max(1, len(rows)) + 24
    n = news["numbers"]
    alt = f"{name}: {n['finished']} of {n['arrived']} requests finished after {news['now']:.1f} s"
    most = f", the last {len(rows)} of {n['arrived']} requests" if len(rows) < n["arrived"] else ""
    parts = [stills.hatches(), f'<text x="0" y="16"><tspan font-weight="600">{escape(name)}</tspan>{most}</text>']
    for place, row in enumerate(rows):
        bars = list(row[10])
        if row[4] in ("waiting", "preempted"):
            bars.append([style.CODE["queue" if row[4] == "waiting" else "preempted"], row[5], news["now"], 0, 0, 0])
        parts += [_bar(bar, 26 + PITCH * place, end) for bar in bars]
    for tick in range(5):
        x = GUTTER + (WIDTH - GUTTER - 30) * tick / 4
        parts.append(f'<text x="{x:.0f}" y="{height - 6}" text-anchor="middle">{end * tick / 4:.3g} s</text>')
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" aria-label="{escape(alt)}" font-size="11" '
        f'fill="{style.INK}" style="max-width:100%;display:block"><title>{escape(alt)}</title>{"".join(parts)}</svg>'
    )


def _bar(bar: list[float], y: float, end: float) -> str:
    code, start, stop, real, padding, cached = bar
    kind = style.KINDS[int(code)]
    scale = (WIDTH - GUTTER - 30) / end
    x, width = GUTTER + start * scale, max(0.5, (stop - start) * scale)
    height = 2 if kind.thin else PITCH - 1
    top = y + (PITCH - 1 - height) / 2
    beside = 0 if kind.hatched else padding
    high = min(height - 1.0, height * beside / (real + beside)) if beside else 0.0  # what is computed in vain
    place = f'x="{x:.1f}" width="{width:.1f}"'
    drawn = f'<rect {place} y="{top:.1f}" height="{height - high:.1f}" fill="{stills.paint(kind)}"/>'
    if beside:
        look = stills.paint(style.KIND["padding"])
        drawn += f'<rect {place} y="{top + height - high:.1f}" height="{high:.1f}" fill="{look}"/>'
    if cached:  # wide enough to be seen, however short the step
        wide, high = max(4.0, width), height * cached / (real + cached)
        look = f'width="{wide:.1f}" height="{high:.1f}" fill="{style.KIND["cached"].color}"'
        drawn += f'<rect x="{x + width - wide:.1f}" y="{top + height - high:.1f}" {look}/>'
    return drawn
