"""Which view suits this front end: the widget, or a picture that is refreshed in place."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.live.session import Session


def choose() -> str:
    """ "widget" or "plain". LAB_LIVE decides if it is one of these; Colab, no anywidget or no kernel mean plain."""
    forced = os.environ.get("LAB_LIVE", "").lower()
    if forced in ("plain", "widget"):
        return forced
    if "google.colab" in sys.modules or find_spec("anywidget") is None:
        return "plain"
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return "widget" if getattr(shell, "kernel", None) is not None else "plain"


def open_view(session: Session) -> Any:
    """A view of `session`; the object displays itself."""
    if choose() == "widget":
        from lab.live.dashboard import Dashboard

        return Dashboard(session)
    from lab.live.plain import PlainView

    return PlainView(session)
