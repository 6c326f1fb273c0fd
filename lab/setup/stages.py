"""The stages of ``python3 -m lab test``: what each runs, and the seconds it may take on two cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.setup.paths import ROOT


@dataclass(slots=True, frozen=True)
class Stage:
    """One stage: either pytest over `paths`, or plain commands that each count as one test."""

    name: str
    budget_s: int
    paths: tuple[str, ...] = ()
    pytest: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    optional: bool = False  # True: quietly absent until its folder exists

    def absent(self) -> str | None:
        """Why the stage cannot run at all, or None."""
        missing = [path for path in self.paths if not (ROOT / path).exists()]
        return f"there is no {missing[0]}" if missing else None

    def pytest_command(self, junit: Path, extra: Sequence[str] = ()) -> list[str]:
        return [sys.executable, "-m", "pytest", *self.paths, *self.pytest, f"--junitxml={junit}", *extra]


def _workers() -> str:
    return str(max(1, min(4, os.cpu_count() or 1)))


NBVAL = (
    "--nbval-lax",
    "--nbval-current-env",
    "--nbval-cell-timeout=300",
    "--nbval-sanitize-with=tests/sanitize.cfg",
)
PYTEST = ("-q", "-rfE", "--no-header", "--tb=short")

STAGES: tuple[Stage, ...] = (
    Stage(
        "lint",
        30,
        commands=(
            (sys.executable, "-m", "ruff", "check", "."),
            (sys.executable, "-m", "ruff", "format", "--check", "."),
        ),
    ),
    Stage(
        "unit",
        360,
        paths=("tests",),
        pytest=(
            *PYTEST,
            *("-m", "not browser", "--ignore=tests/browser", "--ignore=tests/benchmarks"),
            *("-n", _workers(), "--dist", "loadfile"),
        ),
        env={"OMP_NUM_THREADS": "1"},
    ),
    Stage(
        "notebooks",
        720,
        paths=("notebooks",),
        pytest=(*PYTEST, *NBVAL, "-n", "1", "--dist", "loadfile", "--timeout=900"),
        env={"LAB_QUICK": "1"},
    ),
    Stage("browser", 180, paths=("tests/browser",), pytest=(*PYTEST, "--timeout=170")),
    Stage("solutions", 300, paths=("tests/solutions",), pytest=PYTEST, optional=True),
)
