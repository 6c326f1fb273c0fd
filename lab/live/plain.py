"""The live view without widgets: a picture and a table, exchanged in place once a second. Controls are calls.

For front ends that cannot load widgets (Colab, some viewers) and for LAB_LIVE=plain. The same picture is what stays
behind in a saved notebook.
"""

from __future__ import annotations

import time
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from lab.live import still_lanes, stills, style
from lab.live.show import as_text
from lab.live.split import time_split

if TYPE_CHECKING:
    from lab.live.blocks import Holding
    from lab.live.lane import Lane
    from lab.live.session import Session


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
        if any(n.get("refused") for n in numbers.values()):
            found[-1]["refused"] = n.get("refused", 0)
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
        if n["losses"]:
            words.append(n["losses"])
        if news["steps"]:
            last = news["steps"][-1]
            words.append(f"step {last[0]} computed {last[6]} tokens, {last[9]} run, {last[10]} wait")
        if n.get("mfu") and news["peaks"]:
            words.append(f"MFU and MBU are shares of the peak {news['peaks']['source']}")
        if lane.feed.film.latest is not None:
            words.append(("at its fullest, " if lane.done else "") + stills.block_words(shown_blocks(lane)))
        if state["state"] != "running":
            words += slowest(lane)
        found.append(f"{lane.name}: {'; '.join(words)}")
    said = [state["said"]] if state["said"] else []
    return said + [text for text in found if not text.endswith(": ")]


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
    lanes = "".join(still_lanes.lane_svg(session, index, state, max(end, 1.0)) for index in range(len(session.runs)))
    kinds = stills.legend([(stills.swatch(kind), kind.label) for kind in style.KINDS if kind.name != "held"])
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
    found = []
    for lane in lanes:
        holding = shown_blocks(lane)
        per = stills.per_square(holding)
        words = f"{'at its fullest, ' if lane.done else ''}{stills.moment(holding)}"
        words += f"; a square stands for {per} blocks" if per > 1 else ""
        picture = stills.block_map(lane.name, holding)
        found.append(f"<p><b>KV blocks, {escape(lane.name)}</b>, {words}</p>{picture}")
    return "".join(found)


def shown_blocks(lane: Lane) -> Holding:
    """What is held now; of a run that is over, the moment when most was held."""
    film = lane.feed.film
    return film.fullest if lane.done else film.latest


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else style.number(value) if isinstance(value, float) else value
    said = "–" if text is None else escape(str(text))
    short = "max-width:220px;overflow:hidden;text-overflow:ellipsis;white-space:nowrap"  # numbers keep their place
    return f"<td style='text-align:right;padding:2px 10px;{short}' title='{said}'>{said}</td>"
