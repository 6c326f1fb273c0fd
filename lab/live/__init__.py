"""What a person looks at: live sessions, their dashboard, figures, and the utilisation of this machine.

Importing this package needs only the standard library; widgets, plotly and psutil are imported when used.
"""

from __future__ import annotations

from importlib import import_module as _import_module

_NAMES = {
    "Session": "lab.live.session",
    "paused_sessions": "lab.live.registry",
    "stop_all": "lab.live.registry",
    "show": "lab.live.show",
    "Monitor": "lab.live.monitor",
    "Recorder": "lab.live.monitor",
}
_MODULES = ("figures", "style", "session", "show")

__all__ = sorted({*_NAMES, *_MODULES})


def __getattr__(name: str):
    if name in _NAMES:
        value = getattr(_import_module(_NAMES[name]), name)
    elif name in _MODULES:
        value = _import_module(f"lab.live.{name}")
    else:
        raise AttributeError(f"module 'lab.live' has no attribute {name!r}; public names: {', '.join(__all__)}")
    globals()[name] = value
    return value
