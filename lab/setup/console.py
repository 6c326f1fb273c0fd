"""What set-up says: numbered steps, a heartbeat for slow ones, and errors of one sentence."""

from __future__ import annotations

import shutil
import sys
import time

HEARTBEAT_S = 10.0  # one line per so many seconds where lines cannot be overwritten
REFRESH_S = 0.5


class SetupError(Exception):
    """Something the user can mend; its text is one clear sentence that says what to do."""


def size(megabytes: float) -> str:
    """Three significant digits: ``93 MB``, ``1.7 GB``."""
    return f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes:.0f} MB"


def say(text: str = "") -> None:
    print(text, flush=True)


class Status:
    """One status line: rewritten in place on a terminal, else repeated every HEARTBEAT_S seconds."""

    def __init__(self) -> None:
        self.tty = sys.stdout.isatty()
        self.started = self.shown = time.monotonic()
        self.width = 0

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def due(self) -> bool:
        return time.monotonic() - self.shown >= (REFRESH_S if self.tty else HEARTBEAT_S)

    def show(self, text: str) -> None:
        self.shown = time.monotonic()
        line = f"      {self.elapsed:.0f} s  {text}"
        if not self.tty:
            say(line)
            return
        line = line[: shutil.get_terminal_size().columns - 1]
        sys.stdout.write("\r" + line.ljust(self.width))
        sys.stdout.flush()
        self.width = len(line)

    def clear(self) -> None:
        if self.tty and self.width:
            sys.stdout.write("\r" + " " * self.width + "\r")
            sys.stdout.flush()
            self.width = 0


class Steps:
    """Counts and times the steps of one set-up: ``with steps("PyTorch", "200 MB"): …``."""

    def __init__(self, total: int) -> None:
        self.total, self.number, self.started = total, 0, time.monotonic()

    def __call__(self, title: str, detail: str = "") -> _Step:
        return _Step(self._heading(title) + (f" ({detail})" if detail else ""))

    def skip(self, title: str) -> None:
        say(f"{self._heading(title)}: already done")

    def _heading(self, title: str) -> str:
        self.number += 1
        return f"[{self.number}/{self.total}] {title}"

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started


class _Step:
    def __init__(self, text: str) -> None:
        self.text = text

    def __enter__(self) -> _Step:
        self.started = time.monotonic()
        say(self.text)
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None:
            say(f"      done in {time.monotonic() - self.started:.1f} s")
