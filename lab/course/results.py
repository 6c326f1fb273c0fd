"""What `lab.check` says, as text and as HTML. The same words in both; colour never says more than they do."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

MARKS = {"passed": "✔", "failed": "✘", "open": "○", "unknown": "?"}
COLOURS = {"passed": "#009E73", "failed": "#D55E00", "open": "#0072B2", "unknown": "#CC79A7"}  # Okabe-Ito


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The verdict on one try. True in an `if` only when it passed."""

    id: str
    title: str
    status: str  # "passed", "failed", "open" (nothing handed in yet) or "unknown" (no such exercise)
    steps: tuple[str, ...] = ()  # the steps that held
    failing: str = ""  # the first that did not
    message: str = ""
    hints: tuple[str, ...] = ()
    tries: int = 0  # failed ones so far, this one included
    printed: tuple[str, ...] = ()  # the last lines the answer printed

    @property
    def passed(self) -> bool:
        """Every step held."""
        return self.status == "passed"

    def __bool__(self) -> bool:
        return self.passed

    def lines(self) -> list[tuple[str, str]]:
        """(mark, text) per line; the first is the headline."""
        head = f"{self.id} {self.title}".strip()
        if self.status == "unknown":
            return [("?", self.message)]
        if self.status == "open":
            return [("○", f"{head} · still open. {self.message or 'Fill it in and run the cell again.'}")]
        if self.passed:
            return [("✔", f"{head} · passed"), *(("✔", step) for step in self.steps)]
        lines = [("✘", f"{head} · not yet"), *(("✔", step) for step in self.steps)]
        lines.append(("✘", f"{self.failing}: {self.message}"))
        lines += [("»", f"your code printed: {text}") for text in self.printed]
        lines += [("→", f"hint {number}: {hint}") for number, hint in enumerate(self.hints, 1)]
        return lines

    def __repr__(self) -> str:
        (mark, head), *rest = self.lines()
        return "\n".join([f"{mark} {head}", *(f"  {sign} {text}" for sign, text in rest)])

    def _repr_html_(self) -> str:
        (mark, head), *rest = self.lines()
        colour = COLOURS[self.status]
        items = "".join(f"<div>&ensp;{escape(sign)} {escape(text)}</div>" for sign, text in rest)
        return (
            f'<div role="status" style="border-left:4px solid {colour};padding:2px 10px">'
            f"<b>{escape(mark)} {escape(head)}</b>{items}</div>"
        )
