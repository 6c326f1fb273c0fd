"""`lab.course.seat_check()`: is this computer ready for the course? One short table, in about a second."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from importlib import metadata

from lab.course.guard import describe_error
from lab.course.predictions import has_widgets
from lab.setup import fetch_model, stamp
from lab.setup.machine import usable_cores
from lab.setup.paths import DEFAULT_MODEL, model_dir

MARKS = {"ok": "✔", "note": "○", "missing": "✘"}
FIX = "run `python3 -m lab --setup-only` in a terminal"
NEEDED_GB = 2.0  # the model is 0.5 GB, torch with a running engine about 1.2 GB


@dataclass(frozen=True, slots=True)
class Finding:
    """One row. state: "ok", "note" (the course runs, but know this) or "missing" (it does not)."""

    what: str
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class Seat:
    """All findings; shows itself as a table with a verdict."""

    findings: tuple[Finding, ...]

    @property
    def ready(self) -> bool:
        """Nothing is missing."""
        return all(finding.state != "missing" for finding in self.findings)

    @property
    def verdict(self) -> str:
        """One sentence."""
        if not self.ready:
            return "Not ready: see the rows marked ✘."
        notes = sum(finding.state == "note" for finding in self.findings)
        return "Ready." if not notes else f"Ready; {notes} thing{'s' * (notes > 1)} to know (○)."

    def __repr__(self) -> str:
        wide = max(len(finding.what) for finding in self.findings)
        rows = [f"{MARKS[row.state]} {row.what.ljust(wide)}  {row.text}" for row in self.findings]
        return "\n".join([*rows, self.verdict])

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><td>{MARKS[row.state]}</td><th scope="row" style="text-align:left">{escape(row.what)}</th>'
            f'<td style="text-align:left">{escape(row.text)}</td></tr>'
            for row in self.findings
        )
        return f"<table>{rows}</table><b>{escape(self.verdict)}</b>"


def seat_check() -> Seat:
    """Look at versions, model, threads, memory and widgets. Never raises, loads no torch."""
    looks: tuple[tuple[str, Callable[[], tuple[str, str]]], ...] = (
        ("Python", _python),
        ("packages", _packages),
        ("model", _model),
        ("cores", _cores),
        ("memory", _memory),
        ("live parts", _widgets),
    )
    return Seat(tuple(Finding(what, *_look(look)) for what, look in looks))


def _look(look: Callable[[], tuple[str, str]]) -> tuple[str, str]:
    try:
        return look()
    except Exception as error:
        return "note", f"could not be found out ({describe_error(error)})"


def _python() -> tuple[str, str]:
    good = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return (
        ("ok", platform.python_version()) if good else ("missing", f"{platform.python_version()}: needs 3.11 to 3.13")
    )


def _packages() -> tuple[str, str]:
    pins = stamp.pins()
    absent = [name for name, _ in pins if not _version(name)]
    other = [f"{name} {_version(name)}" for name, wanted in pins if _version(name).split("+")[0] not in ("", wanted)]
    if absent:
        return "missing", f"{', '.join(absent)} not installed: {FIX}"
    if other:
        return "note", f"torch {_version('torch')}; other than tested: {', '.join(other)}"
    return "ok", f"torch {_version('torch')}; all {len(pins)} as tested"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _model() -> tuple[str, str]:
    if not fetch_model.is_complete():
        return "missing", f"not downloaded yet: {FIX}"
    config = json.loads((model_dir() / "config.json").read_text(encoding="utf-8"))
    title = fetch_model.known_models()[DEFAULT_MODEL]["title"]
    return "ok", f"{title}, {config['num_hidden_layers']} layers"


def _cores() -> tuple[str, str]:
    usable = usable_cores()
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if usable < 2:
        return "note", "1 usable: live parts will stutter, measured times will be long"
    if busy > 0.75 * usable:
        return "note", f"{usable} usable, but other programs keep them busy: measured times will be long"
    return "ok", f"{usable} usable"


def _memory() -> tuple[str, str]:
    import psutil

    free = psutil.virtual_memory().available / 1e9
    if free < NEEDED_GB:
        return "note", f"{free:.1f} GB free, {NEEDED_GB:.0f} GB are comfortable: close something large"
    return "ok", f"{free:.0f} GB free"


def _widgets() -> tuple[str, str]:
    absent = [name for name in ("ipywidgets", "anywidget", "plotly") if importlib.util.find_spec(name) is None]
    if absent:
        return "missing", f"{', '.join(absent)} not installed: {FIX}"
    if not has_widgets():
        return "note", "not inside Jupyter: text instead of sliders and buttons"
    return "ok", "sliders, buttons and moving pictures"
