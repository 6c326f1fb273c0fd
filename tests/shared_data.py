"""Real traces and profiles for tests: they lie beside the checkout, not in it, and tests without them skip."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"


def shared(name: str) -> Path:
    """A file or folder of the shared data (LAB_SHARED_DATA, or ../shared/data); skips the test without it."""
    path = Path(os.environ.get("LAB_SHARED_DATA") or BESIDE) / name
    if not path.exists():
        pytest.skip(f"{path} is not there: real traces are read from LAB_SHARED_DATA or from beside the checkout")
    return path
