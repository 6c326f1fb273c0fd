"""Run code that may raise, print or never end, and come back with what happened.

No thread and no process is needed: a trace function counts the lines of the learner's code and the calls of
everybody's, and stops at a budget; a timer stops loops without trace events. Only a loop inside one C call
(`sum(itertools.count())`) escapes both.
"""

from __future__ import annotations

import io
import linecache
import signal
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from time import monotonic
from types import FrameType
from typing import Any

from lab.setup.paths import ROOT

STEP_BUDGET = 2_000_000  # about a second of a loop that does nothing
SECONDS = 30.0  # for code whose single steps are slow


class OutOfSteps(BaseException):
    """The budget is spent. Not an Exception, so that `except Exception` in a learner's loop lets it through."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a guarded call came to: `error` is None when it returned."""

    error: BaseException | None
    printed: str

    @property
    def ran_away(self) -> bool:
        """True when the call was stopped."""
        return isinstance(self.error, OutOfSteps)


def guarded(call: Callable[[], Any], steps: int = STEP_BUDGET, seconds: float = SECONDS) -> Outcome:
    """Run `call`; whatever it raises, SystemExit and KeyboardInterrupt included, is returned, never raised."""
    printed = io.StringIO()
    before = sys.gettrace()
    error: BaseException | None = None
    try:
        with redirect_stdout(printed), redirect_stderr(printed), _alarm(seconds):
            sys.settrace(_counter(steps, monotonic() + seconds))
            try:
                call()
            finally:
                sys.settrace(before)
    except BaseException as raised:
        error = raised
    return Outcome(error, printed.getvalue())


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Stop after `seconds` of real time what no trace event interrupts, such as `while True: pass` on one line.

    Needs a timer signal and the main thread, which is where notebook cells run; elsewhere the trace function is alone.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfSteps(f"stopped after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _counter(steps: int, deadline: float) -> Callable[[FrameType, str, Any], Any]:
    left = steps

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or (left % 4096 == 0 and monotonic() > deadline):
            raise OutOfSteps(f"stopped after {steps - left - 1:,} steps")
        return count if is_learners(frame.f_code.co_filename) else None

    return count


@cache
def is_learners(filename: str) -> bool:
    """True for a notebook cell or a file of the learner's own; answers kept with the exercises count as such."""
    course = ROOT / "lab" / "course"
    if filename.startswith((str(course / "exercises"), str(course / "audit.py"))):
        return True
    ours = (str(ROOT / "lab"), sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "<frozen", "<string>")
    return not filename.startswith(ours)


def describe_error(error: BaseException) -> str:
    """One sentence about an error, with the learner's own line where there is one. Never raises."""
    try:
        text = str(error).strip().partition("\n")[0]
    except BaseException:
        text = "(its message cannot be shown)"
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if is_learners(frame.filename)]
    if not lines:
        return said
    line = lines[-1].line or linecache.getline(lines[-1].filename, lines[-1].lineno or 0).strip()
    return f"{said}, in line {lines[-1].lineno}: {line}" if line else said
