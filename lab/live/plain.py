"""The live view without widgets: a picture and a table, exchanged in place once a second. Controls are calls.

For front ends that cannot load widgets (Colab, some viewers) and for LAB_LIVE=plain. The same picture is what stays
behind in a saved notebook.
"""

from __future__ import annotations

import time
from html import escape
from typing import TYPE_CHECKING, Any

from lab.live import style
from lab.live.show import as_text

if TYPE_CHECKING:
    from lab.live.session import Session

WIDTH, GUTTER, PITCH = 860, 40, 7


class PlainView:
    """Displays itself when it is the value of a cell, and is refreshed while the session runs."""

    def __init__(self, session: Session, interval: float = 1.0):
        self.session, self.interval = session, interval
        self._handle: Any = None
        self._told, self._state = 0.0, ""
        session.news.listeners.add(self)
        session.plain_view = self  # keeps it alive as long as the session

    def __repr__(self) -> str:
        return f"<plain live view: {', '.join(self.session.runs)}>"

    def _ipython_display_(self) -> None:
        from IPython.display import display

        self._handle = display(self.bundle(), raw=True, display_id=True)

    def update(self, message: dict[str, Any]) -> None:
        """Called by the session; refreshes the picture at most once per interval, and at every change of state."""
        now = time.monotonic()
        if self._handle is None or (message["state"] == self._state and now - self._told < self.interval):
            return
        self._told, self._state = now, message["state"]
        self._handle.update(self.bundle(), raw=True)

    def bundle(self) -> dict[str, str]:
        """HTML and text of the present state."""
        state = self.session.news.snapshot()
        rows = table(self.session, state)
        text = f"{state['state']}. {state['note']}\n{as_text(rows)}".strip()
        return {"text/html": page(self.session, state, rows), "text/plain": text}


def table(session: Session, state: dict[str, Any]) -> list[dict[str, Any]]:
    """The dashboard's table as rows."""
    found = []
    numbers = {news["lane"]: news["numbers"] for news in state["lanes"]}
    for index, name in enumerate(session.runs):
        n = numbers.get(index, {})
        found.append(
            {
                "policy": name,
                "output tokens/s": n.get("output_tokens_per_s"),
                "TTFT p50 (s)": n.get("ttft_p50"),
                "TTFT p95 (s)": n.get("ttft_p95"),
                "requests per step": n.get("mean_batch"),
                "wasted work (%)": None if n.get("waste") is None else round(100 * n["waste"]),
                "finished": n.get("finished", 0),
            }
        )
    return found


def page(session: Session, state: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """One HTML fragment: what to call, the table, a lane per policy."""
    clock = f"{style.clock_name(session.measured)} ({session.clock} clock)"
    hint = {
        "ready": "Call <code>session.start()</code> in the next cell; <code>session.pause()</code>, "
        "<code>session.set(load=…)</code> and <code>session.stop()</code> steer it.",
        "failed": f"<b>{escape(state['note'])}</b>",
    }.get(state["state"], escape(state["note"]))
    head = "".join(f"<th style='text-align:right;padding:2px 10px'>{escape(name)}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(map(_cell, row.values())) + "</tr>" for row in rows)
    end = max([lane["now"] for lane in state["lanes"]], default=0.0)
    lanes = "".join(lane_svg(session, index, state, max(end, 1.0)) for index in range(len(session.runs)))
    return (
        f"<div style='font-family:{escape(style.FONT)}'><p><b>{state['state']}</b>, {clock}. {hint}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{lanes}</div>"
    )


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else style.number(value) if isinstance(value, float) else value
    return f"<td style='text-align:right;padding:2px 10px'>{'–' if text is None else escape(str(text))}</td>"


def lane_svg(session: Session, index: int, state: dict[str, Any], end: float) -> str:
    """Requests × time of one policy as SVG; empty before it begins."""
    news = next((lane for lane in state["lanes"] if lane["lane"] == index), None)
    if news is None:
        return ""
    name, rows = list(session.runs)[index], sorted(news["rows"], key=lambda row: (row[1], row[0]))[-40:]
    height = 26 + PITCH * max(1, len(rows)) + 24
    n = news["numbers"]
    alt = f"{name}: {n['finished']} of {n['arrived']} requests finished after {news['now']:.1f} s"
    parts = [f'<text x="0" y="16" font-weight="600">{escape(name)}</text>']
    for place, row in enumerate(rows):
        bars = list(row[10])
        if row[4] in ("waiting", "preempted"):
            bars.append([style.CODE["queue" if row[4] == "waiting" else "preempted"], row[5], news["now"], 0, 0])
        parts += [_bar(bar, 26 + PITCH * place, end) for bar in bars]
    for tick in range(5):
        x = GUTTER + (WIDTH - GUTTER - 30) * tick / 4
        parts.append(f'<text x="{x:.0f}" y="{height - 6}" text-anchor="middle">{end * tick / 4:.3g} s</text>')
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" aria-label="{escape(alt)}" font-size="11" '
        f'fill="{style.INK}" style="max-width:100%;display:block"><title>{escape(alt)}</title>{"".join(parts)}</svg>'
    )


def _bar(bar: list[float], y: float, end: float) -> str:
    code, start, stop, *_ = bar
    kind = style.KINDS[int(code)]
    scale = (WIDTH - GUTTER - 30) / end
    x, width = GUTTER + start * scale, max(0.5, (stop - start) * scale)
    height = 2 if kind.thin else PITCH - 1
    top = y + (PITCH - 1 - height) / 2
    faint = ' fill-opacity=".45"' if kind.hatched else ""
    return f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height}" fill="{kind.color}"{faint}/>'
