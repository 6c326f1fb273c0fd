"""`lab.predict` asks for a guess before the result is known; `lab.reveal` puts the two side by side.

Guesses are kept in `data/progress/predictions.json` (never in git), so that they outlive the kernel.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from html import escape
from math import isfinite
from pathlib import Path
from typing import Any

from lab.setup.paths import ROOT

Guess = float | str
_guesses: dict[str, dict[str, Any]] = {}  # of this process; the file is read when it has none
_units: dict[str, str] = {}  # of the questions asked in this process


def progress_folder() -> Path:
    """Where guesses are kept: LAB_PROGRESS_DIR, or data/progress in the repository."""
    return Path(os.environ.get("LAB_PROGRESS_DIR") or ROOT / "data" / "progress")


def _stored() -> dict[str, dict[str, Any]]:
    try:
        read = json.loads((progress_folder() / "predictions.json").read_text(encoding="utf-8"))
        return {id: entry for id, entry in read.items() if isinstance(entry, dict) and "guess" in entry}
    except (OSError, ValueError, AttributeError):
        return {}


def guess_of(id: str) -> Guess | None:
    """What was predicted, in this session or an earlier one; None when nothing was."""
    entry = _guesses.get(id) or _stored().get(id)
    return entry["guess"] if entry else None


def record(id: str, question: str, guess: Guess, unit: str = "") -> None:
    """Keep a guess, on disk too where that can be written."""
    _guesses[id] = {"question": question, "guess": guess, "unit": unit}
    path = progress_folder() / "predictions.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}.tmp")
        fresh.write_text(json.dumps(_stored() | _guesses, indent=1, ensure_ascii=False), encoding="utf-8")
        fresh.replace(path)
    except OSError:
        pass  # a read-only classroom folder: the guess lives as long as the kernel


def as_number(text: str) -> float | None:
    """A guess as typed ("3.5", "3,5", "1e3"), or None."""
    try:
        value = float(text.strip().replace(",", "."))
    except ValueError:
        return None
    return value if isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Prediction:
    """A question that waits for a guess. Shows itself as a widget where there are widgets, else as text."""

    id: str
    question: str
    options: tuple[str, ...] = ()
    unit: str = ""

    @property
    def guess(self) -> Guess | None:
        """What has been predicted so far."""
        return guess_of(self.id)

    def commit(self, guess: Any) -> None:
        """Record a guess. Raises ValueError for one that is no option, or no number."""
        if self.options:
            if guess not in self.options:
                raise ValueError(f"{guess!r} is not one of {', '.join(self.options)}")
            record(self.id, self.question, guess)
            return
        number = as_number(str(guess))
        if number is None:
            raise ValueError(f"{guess!r} is not a number")
        record(self.id, self.question, number, self.unit)

    def lines(self) -> list[str]:
        """The question, how to answer it, and the guess if there is one."""
        asked = f"Predict ({self.id}): {self.question}"
        if self.options:
            asked += " " + " | ".join(self.options)
        elif self.unit:
            asked += f" [{self.unit}]"
        if self.guess is None:
            return [asked, "No prediction made yet."]
        return [asked, f"Your prediction: {with_unit(self.guess, self.unit)}."]

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        asked, said = map(escape, self.lines())
        return f'<div style="border-left:4px solid #0072B2;padding:2px 10px"><b>{asked}</b><div>{said}</div></div>'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle = {"text/plain": repr(self), "text/html": self._repr_html_()}
        if has_widgets():
            from lab.course.predict_widget import build

            bundle |= build(self)._repr_mimebundle_() | {"text/plain": repr(self)}
        return bundle


def predict(id: str, question: str, options: Any = (), unit: str = "", guess: Any = None) -> Prediction:
    """Ask for a guess: one of `options`, or a number in `unit`. Without widgets, give it as `guess`.

    Running the cell without answering is fine; `reveal` then says that no prediction was made.
    """
    prediction = Prediction(str(id), question, tuple(map(str, options)), unit)
    _units[prediction.id] = unit
    if guess is not None:
        prediction.commit(guess)
    return prediction


def has_widgets() -> bool:
    """True inside a Jupyter kernel with ipywidgets. LAB_NO_WIDGETS=1 says no."""
    if os.environ.get("LAB_NO_WIDGETS"):
        return False
    try:
        import ipywidgets  # noqa: F401
        from IPython import get_ipython
    except ImportError:
        return False
    return getattr(get_ipython(), "kernel", None) is not None


@dataclass(frozen=True, slots=True)
class Reveal:
    """A guess beside what came out."""

    id: str
    guess: Guess | None
    actual: Guess
    unit: str = ""
    note: str = ""

    def lines(self) -> list[str]:
        """Guess, result, and one sentence about how far apart they are."""
        result = f"Result: {with_unit(self.actual, self.unit)}."
        if self.guess is None:
            return [f"No prediction made. {result}", *([self.note] if self.note else [])]
        said = f"Your prediction: {with_unit(self.guess, self.unit)}. {result} {self._verdict()}"
        return [said.strip(), *([self.note] if self.note else [])]

    def _verdict(self) -> str:
        guess, actual = self.guess, self.actual
        if isinstance(guess, str) or isinstance(actual, str):
            return "As you predicted." if str(guess) == str(actual) else "Not what you predicted."
        if guess == actual:
            return "Exactly."
        if guess * actual <= 0:
            return ""
        factor = actual / guess
        if abs(factor - 1) <= 0.1:
            return "Within 10 % of your prediction."
        return f"The result is {number(factor)} times your prediction."

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        rows = "".join(f"<div>{escape(line)}</div>" for line in self.lines())
        return f'<div role="status" style="border-left:4px solid #E69F00;padding:2px 10px">{rows}</div>'


def reveal(id: str, actual: Any, note: str = "", unit: str | None = None) -> Reveal:
    """Show the guess made under `id` beside `actual`: a number, or the option that turned out to be true."""
    entry = _guesses.get(str(id)) or _stored().get(str(id)) or {}
    known = _units.get(str(id), entry.get("unit", "")) if unit is None else unit
    value = actual if isinstance(actual, str) else float(actual)
    return Reveal(str(id), entry.get("guess"), value, known, note)


def with_unit(value: Guess, unit: str) -> str:
    """ "4.1 tokens/s", "4.1×", or the option itself."""
    text = value if isinstance(value, str) else number(value)
    return text + ("" if not unit else unit if unit in ("×", "%") else f" {unit}")


def number(value: float) -> str:
    """Whole numbers whole, others with three digits that count."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
