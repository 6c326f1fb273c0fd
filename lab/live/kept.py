"""The picture beside a dashboard that stays in a saved notebook: an output of its own, exchanged whenever a run stands.

While the dashboard is alive its page hides this output (by the class of its outermost element). Where no kernel runs,
the widget cannot be drawn and the picture is what one sees.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from lab.live.plain import Still

if TYPE_CHECKING:
    from lab.live.session import Session

OVER = ("finished", "stopped", "failed", "replaced")
NOTHING = "The dashboard needs a running notebook. When a run ends or pauses, its picture and numbers are kept here."


def class_of(session: Session) -> str:
    """The class by which the page finds the picture: the same whenever the same cell is run."""
    return f"lab-kept-{zlib.crc32(session.key.encode()):08x}"


class Kept:
    """One output; `update` may be called from any thread."""

    def __init__(self, session: Session):
        self.session = session
        self._handle: Any = None
        self._shown: tuple[int, str, int] | None = None

    def display(self) -> None:
        """Add the output to the cell that runs."""
        from IPython.display import display

        self._handle = display(self.bundle(), raw=True, display_id=True)

    def update(self, message: dict[str, Any]) -> None:
        """Make the picture anew when a run has ended or stands still and something has happened since the last one."""
        state = message["state"]
        if self._handle is None or not (state == "paused" or (state in OVER and not self.session.alive)):
            return
        shown = (message["run"], state, sum(lane.feed.steps for lane in self.session.lanes))
        if shown != self._shown:
            self._shown = shown
            self._handle.update(self.bundle(), raw=True)

    def bundle(self) -> dict[str, str]:
        """HTML and text of the session as it stands; before the first run a sentence."""
        if self.session.lanes:
            data = Still(self.session).bundle
        else:
            data = {"text/html": f"<p>{NOTHING}</p>", "text/plain": NOTHING}
        html = f'<div class="{class_of(self.session)}">{data["text/html"]}</div>'
        return {"text/html": html, "text/plain": data["text/plain"]}
