"""What this computer is, as far as the standard library can say."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path


def processor() -> str:
    """Name of the processor, "unknown processor" where the system does not say."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or "unknown processor"


def usable_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
