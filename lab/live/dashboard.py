"""The live view of a session: one anywidget, drawn on a canvas in the browser, told 10 times a second what changed.

The page gets its constants (names, colours, units) once, as a trait, so that it can be drawn before anything runs;
everything else travels as small custom messages. Clicks come back as commands that only set flags.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from lab.live import kept, past, style
from lab.live.asked import policy_of
from lab.live.lane import Lane, limit_of
from lab.live.news import spec_of

if TYPE_CHECKING:
    from lab.live.session import Session

STATIC = Path(__file__).parent / "static"
SCRIPTS = "theme store lanes panels distributions view table drawing usage pointer scrub blocks card main".split()
MANY = 150  # requests that fit on one page; of longer runs the last seconds are shown
_serial = itertools.count(1)


def script() -> str:
    """The widget's module: its files in reading order."""
    return "\n".join((STATIC / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)


class Dashboard(anywidget.AnyWidget):
    """Shows one session; several dashboards may show the same one. Keep a reference to stay informed."""

    _esm = script()
    _css = (STATIC / "style.css").read_text(encoding="utf-8")
    config = traitlets.Dict().tag(sync=True)
    uid = traitlets.Unicode().tag(sync=True)

    def __init__(self, session: Session):
        super().__init__(config=page_config(session), uid=f"{os.getpid()}-{next(_serial)}")
        self.session, self._kept = session, kept.Kept(session)
        self._acks: list[tuple[int, int]] = []  # (command number of the session, of the page)
        session.news.listeners.add(self)
        self.on_msg(self._hear)

    def __repr__(self) -> str:
        return f"<live dashboard: {', '.join(self.session.runs)}; needs a running notebook, the picture below stays>"

    def _ipython_display_(self) -> None:
        """The widget, and below it the picture that stays in a saved notebook."""
        from IPython.display import display

        data, metadata = self._repr_mimebundle_()
        display(data, metadata=metadata, raw=True)
        self._kept.display()

    def update(self, message: dict[str, Any]) -> None:
        """Pass on what is new."""
        done = [page for number, page in self._acks if number <= message["ack"]]
        if done:
            self._acks = [entry for entry in self._acks if entry[1] not in done]
            message = message | {"acks": done}
        self.send(message)
        try:
            self._kept.update(message)
        except Exception as error:  # the live view is worth more than its twin
            self.session.news.say(f"The picture could not be kept: {type(error).__name__}: {error}")

    def _hear(self, _: Any, content: dict[str, Any], __: Any) -> None:
        """A click or a slider, on whatever thread the kernel chose: set flags and return."""
        session, command = self.session, content.get("command")
        try:
            if command == "hello":
                self.send(session.news.snapshot())
            elif command == "set":
                number = session.set(**{content["name"]: content["value"]})
                self._acks.append((number, content["id"]))
                self.send({"kind": "accepted", "id": content["id"]})
            elif command == "past":
                lane = self._lane(content)
                self._answer(content, lane and past.look(lane, content["index"], content.get("around", False)))
            elif command == "why":
                lane = self._lane(content)
                if lane is not None and content["request"] in lane.trace.requests:
                    session.news.speech.follow(content["lane"], content["request"])
                    self._answer(content, past.why(lane, content["request"]))
            elif command in ("start", "pause", "resume", "step", "send"):
                getattr(session, command)()
            elif command == "stop":
                session.halt(wait=False)
        except Exception as error:
            session.news.say(f"{type(error).__name__}: {error}")
        if command not in ("hello", "past", "why"):
            session.news.publish()

    def _lane(self, content: dict[str, Any]) -> Lane | None:
        """The policy asked about; None before it has begun: a page may ask for what an older run had."""
        lanes, place = self.session.lanes, content["lane"]
        return lanes[place] if 0 <= place < len(lanes) else None

    def _answer(self, question: dict[str, Any], found: dict[str, Any] | None) -> None:
        """What was looked up: this reads the trace and touches no engine."""
        if found is not None:
            names = ("lane", "request", "id")
            kept = {name: question[name] for name in names if name in question}
            self.send({"kind": question["command"], "run": self.session.runs_started, **kept, **found})


def invitation(session: Session) -> str:
    """What Start will do, in a sentence."""
    names = list(session.runs)
    then = f"{names[0]}, then {', then '.join(names[1:])}" if len(names) > 1 else names[0]
    number = "Requests without end" if session.endless else f"The same {len(session.work)} requests"
    return f"Press Start. {number} go through {then}."


def page_config(session: Session) -> dict[str, Any]:
    """The constants of the page."""
    runs = []
    for index, (name, options) in enumerate(session.runs.items()):
        policy = policy_of(options)
        runs.append(
            {
                "name": name,
                "spec": spec_of(options),
                "color": style.policy_color(index),
                "limit": limit_of(policy),
            }
        )
    rate = session.controls.rate()
    return {
        "runs": runs,
        "kinds": [
            {
                "name": kind.name,
                "label": kind.label,
                "short": kind.short,
                "color": kind.color,
                "hatched": kind.hatched,
                "backward": kind.backward,
                "thin": kind.thin,
                "legend": kind.name != "held",
            }
            for kind in style.KINDS
        ],
        "labels": {
            name: {"label": quantity.label, "unit": quantity.unit} for name, quantity in style.QUANTITIES.items()
        },
        "controls": session.controls.wire(),
        "parts": [
            {"name": part, "label": label, "color": style.KIND[kind].color, "hatched": style.KIND[kind].hatched}
            for part, (label, kind) in style.PARTS.items()
        ],
        "owners": style.OWNER_COLORS,
        "slo": session.slo,
        "measured": session.measured,
        "clock": "measured, wall clock" if session.measured else f"simulated, {session.clock} clock",
        "endless": session.endless,
        "scroll": session.endless or len(session.work) > MANY,
        "requests": len(session.work),
        "expected": session.work.specs[-1].arrival / rate,
        "invitation": invitation(session),
        "kept": kept.class_of(session),
        "long_prompt": session.long_prompt_tokens,
    }
