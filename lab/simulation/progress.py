"""What a long simulation says meanwhile: one line on stderr, rewritten every few seconds.

Nothing is written where nobody looks: into files, and in notebooks, whose cells are checked.
"""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

from lab.plan import StepPlan, StepResult


class Line:
    """One status line, shown at most every `every` seconds, and only on a terminal."""

    def __init__(self, every: float = 2.0, stream: TextIO | None = None):
        self.stream = stream or sys.stderr
        self.shown, self.every, self.width = time.monotonic(), every, 0
        self.visible = bool(getattr(self.stream, "isatty", bool)())

    def due(self) -> bool:
        """True when it is time to say something again."""
        return self.visible and time.monotonic() - self.shown >= self.every

    def show(self, text: str) -> None:
        """Rewrite the line."""
        self.shown = time.monotonic()
        if self.visible:
            self.stream.write("\r" + text.ljust(self.width))
            self.stream.flush()
            self.width = len(text)

    def clear(self) -> None:
        """Take the line away."""
        if self.width:
            self.stream.write("\r" + " " * self.width + "\r")
            self.stream.flush()
            self.width = 0


class Watched:
    """A model whose runners say now and then how far they are; in everything else it is the model itself.

    Progress is the newest request in a step, of `total`: requests of a trace are numbered as they arrive.
    """

    def __init__(self, model: Any, total: int, line: Line, label: str = ""):
        self._model, self._total, self._line, self._label = model, total, line, label

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def runner(self, *args: Any, **options: Any) -> Any:
        """The model's runner, watched."""
        return _WatchedRunner(self._model.runner(*args, **options), self)

    def _say(self, plan: StepPlan, steps: int) -> None:
        newest = max((row.request for row in plan.rows), key=lambda request: request.arrival_time)
        self._line.show(
            f"{self._label}request {newest.id + 1:,} of {self._total:,}, "
            f"{newest.arrival_time:,.0f} simulated seconds, {steps:,} plans"
        )


class _WatchedRunner:
    def __init__(self, runner: Any, watched: Watched):
        self._runner, self._watched, self._plans = runner, watched, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def run(self, plan: StepPlan) -> StepResult:
        """Let the runner price the plan."""
        self._plans += 1
        if self._watched._line.due() and plan.rows:
            self._watched._say(plan, self._plans)
        return self._runner.run(plan)
