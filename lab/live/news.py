"""What views of a session are told: at first everything, then ten times a second what changed."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from lab.axes import describe
from lab.live.asked import policy_of
from lab.live.speech import Speech

if TYPE_CHECKING:
    from lab.live.session import Session


class News:
    """Listeners have `update(message)`; they are held weakly, and one that fails is dropped with a note."""

    def __init__(self, session: Session):
        self.session = session
        self.listeners: weakref.WeakSet[Any] = weakref.WeakSet()
        self.notes: list[str] = []  # what the monitor cannot show, and why
        self.said = ""  # the last sentence for the person
        self.speech = Speech(session.work, session.model)
        self.revision = 0
        self._lock = threading.Lock()

    def say(self, note: str) -> None:
        """Show a sentence in the views."""
        self.said = note

    def forget(self) -> None:
        """A new run begins."""
        self.said = ""
        self.speech.forget()

    def publish(self) -> None:
        """Tell every listener what is new."""
        with self._lock:
            news = [(index, lane.feed.drain(lane.now())) for index, lane in enumerate(self.session.lanes)]
            self.revision += 1
            message = self._head("delta") | {"lanes": [{"lane": index, **some} for index, some in news if some]}
        for listener in list(self.listeners):
            try:
                listener.update(message)
            except Exception as error:
                self.listeners.discard(listener)
                self.say(f"A view was closed: {type(error).__name__}: {error}")

    def snapshot(self) -> dict[str, Any]:
        """Everything, for a view that knows nothing yet."""
        with self._lock:
            lanes = [{"lane": i, **lane.feed.snapshot(lane.now())} for i, lane in enumerate(self.session.lanes)]
            return self._head("full") | {"lanes": lanes}

    def _head(self, kind: str) -> dict[str, Any]:
        session, worker, lanes = self.session, self.session.worker, self.session.lanes
        now = [round(lane.now(), 4) for lane in lanes]
        return {
            "kind": kind,
            "revision": self.revision,
            "run": session.runs_started,
            "state": session.state,
            "note": "" if worker is None else worker.note,
            "active": 0 if worker is None else worker.active,
            "done": [lane.done for lane in lanes],
            "now": now,
            "ack": 0 if worker is None else worker.ack,
            "controls": session.controls.wire(),
            "capacity": session.controls.capacity,
            "rate": lanes[-1].reader.story.rate(now[-1]) if lanes else None,
            "notes": self.notes,
            "said": self.said,
            "flight": lanes[-1].feed.flight if lanes else None,
            "speech": self.speech.wire(lanes),
        }


def spec_of(options: dict[str, Any]) -> str:
    """The axes of a run that say what it is, as specs."""
    named = [
        f"{axis}={describe(value) if hasattr(value, 'name') else value}"
        for axis, value in options.items()
        if axis != "batching"
    ]
    return ", ".join([describe(policy_of(options)), *named])
