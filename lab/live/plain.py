"""The live view without widgets: a picture and a table, exchanged in place once a second. Controls are calls.

For front ends that cannot load widgets (Colab, some viewers) and for LAB_LIVE=plain. The same picture is what stays
behind in a saved notebook.
"""

from __future__ import annotations

import time
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from lab.live import stills, style
from lab.live.show import as_text
from lab.live.split import time_split

if TYPE_CHECKING:
    from lab.live.blocks import Holding
    from lab.live.lane import Lane
    from lab.live.session import Session

WIDTH, GUTTER, PITCH = 860, 40, 7


class PlainView:
    """Displays itself when it is the value of a cell, and is refreshed while the session runs."""

    def __init__(self, session: Session, interval: float = 1.0, keep: bool = True):
        self.session, self.interval = session, interval
        self._handle: Any = None
        self._told, self._state = 0.0, ""
        if keep:
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
        words = "\n".join(sentences(self.session, state))
        text = f"{state['state']}. {state['note']}\n{as_text(rows)}\n{words}".strip()
        return {"text/html": page(self.session, state, rows), "text/plain": text}


class Still:
    """The live view as it is at this moment: a picture and a table that stay in a saved notebook."""

    def __init__(self, session: Session):
        self._view = PlainView(session, keep=False)

    @cached_property
    def bundle(self) -> dict[str, str]:
        """HTML with the pictures, and text; made when it is first looked at."""
        return self._view.bundle()

    def __repr__(self) -> str:
        return self.bundle["text/plain"]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.bundle


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
                "ITL p95 (s)": n.get("itl_p95"),
                "requests per step": n.get("mean_batch"),
                "wasted work (%)": None if n.get("waste") is None else round(100 * n["waste"]),
                "finished": n.get("finished", 0),
            }
        )
        slo = n.get("slo") or {}
        if session.slo:
            found[-1]["within SLO"] = f"{slo['met']} of {slo['judged']}" if slo.get("judged") else "–"
        if n.get("mfu") or n.get("mbu"):
            found[-1] |= {"MFU (%)": _percent(n.get("mfu")), "MBU (%)": _percent(n.get("mbu"))}
    return found


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def sentences(session: Session, state: dict[str, Any]) -> list[str]:
    """What the pictures show beyond the table, in words."""
    found = []
    for news, lane in zip(state["lanes"], session.lanes, strict=False):
        n, slo = news["numbers"], news["numbers"]["slo"] or {}
        limits = [(name, session.slo[name], slo[name]) for name in ("ttft", "itl") if slo.get(name) is not None]
        words = [f"{share:.0%} within the {name.upper()} limit of {limit:g} s" for name, limit, share in limits]
        if news["steps"]:
            last = news["steps"][-1]
            words.append(f"step {last[0]} computed {last[6]} tokens, {last[9]} run, {last[10]} wait")
        if n.get("mfu") and news["peaks"]:
            words.append(f"MFU and MBU are shares of the peak {news['peaks']['source']}")
        if lane.feed.film.latest is not None:
            words.append(("at its fullest: " if lane.done else "") + stills.block_words(shown_blocks(lane)))
        if state["state"] != "running":
            words += slowest(lane)
        found.append(f"{lane.name}: {'; '.join(words)}")
    return [text for text in found if not text.endswith(": ")]


def slowest(lane: Lane) -> list[str]:
    """Where the time of the slowest request went that is still shown."""
    over = [view for view in lane.feed.rows.values() if view.state in ("finished", "delivered")]
    if not over:
        return []
    view = max(over, key=lambda view: view.since - view.info.arrival_time)
    parts = time_split(lane.trace, view.info.id)
    words = ", ".join(f"{style.PARTS[part][0]} {style.number(time)}" for part, time in parts.items() if time > 0)
    return [f"request {stills.name(view.info.id)} took longest, {style.number(sum(parts.values()))} s: {words}"]


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
    kinds = stills.legend([(kind.color, kind.label) for kind in style.KINDS if kind.name != "held"])
    policies = stills.legend([(style.policy_color(i), name) for i, name in enumerate(session.runs)])
    words = "".join(f"<p>{escape(text)}</p>" for text in sentences(session, state))
    blocks = stills.legend([("currentColor", "shared"), (style.KIND["cached"].color, "kept by the prefix cache")])
    return (
        f"<div style='font-family:{escape(style.FONT)}'><p><b>{state['state']}</b>, {clock}. {hint}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{kinds}</p>{lanes}"
        f"{latencies(session, state)}<p>{policies}</p>{maps(session)}"
        f"<p>one colour per request {blocks}</p>{words}</div>"
    )


def latencies(session: Session, state: dict[str, Any]) -> str:
    """TTFT and ITL so far, side by side."""
    names = list(session.runs)
    pictures = []
    for metric, title in (("ttft", "Time to first token"), ("itl", "Inter-token latency")):
        curves = [(names[n["lane"]], style.policy_color(n["lane"]), n[metric]) for n in state["lanes"]]
        pictures.append(stills.cdf(title, curves, session.slo.get(metric)))
    return f"<div>{''.join(pictures)}</div>" if any(pictures) else ""


def maps(session: Session) -> str:
    """The block map of each policy."""
    lanes = [lane for lane in session.lanes if lane.feed.film.latest is not None]
    return "".join(
        f"<p><b>KV blocks, {escape(lane.name)}</b></p>{stills.block_map(lane.name, shown_blocks(lane))}"
        for lane in lanes
    )


def shown_blocks(lane: Lane) -> Holding:
    """What is held now; of a run that is over, the moment when most was held."""
    film = lane.feed.film
    return film.fullest if lane.done else film.latest


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
    code, start, stop, real, _, cached = bar
    kind = style.KINDS[int(code)]
    scale = (WIDTH - GUTTER - 30) / end
    x, width = GUTTER + start * scale, max(0.5, (stop - start) * scale)
    height = 2 if kind.thin else PITCH - 1
    top = y + (PITCH - 1 - height) / 2
    faint = ' fill-opacity=".45"' if kind.hatched else ""
    drawn = f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height}" fill="{kind.color}"{faint}/>'
    if cached:  # wide enough to be seen, however short the step
        wide, high = max(4.0, width), height * cached / (real + cached)
        look = f'width="{wide:.1f}" height="{high:.1f}" fill="{style.KIND["cached"].color}"'
        drawn += f'<rect x="{x + width - wide:.1f}" y="{top + height - high:.1f}" {look}/>'
    return drawn
