"""What makes the notebooks a course: predictions, checks, a seat check, shown source, and the copies' generator."""

from __future__ import annotations

from importlib import import_module as _import_module

_NAMES = {
    "check": "lab.course.checks",
    "contents": "lab.course.contents",
    "when_done": "lab.course.checks",
    "predict": "lab.course.predictions",
    "quick": "lab.course.sizes",
    "reveal": "lab.course.predictions",
    "seat_check": "lab.course.seat",
    "show": "lab.course.showing",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str):
    if name not in _NAMES:
        raise AttributeError(f"module 'lab.course' has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = getattr(_import_module(_NAMES[name]), name)
    globals()[name] = value
    return value
