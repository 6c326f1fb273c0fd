"""One set-up at a time: a lock on a file, freed by the system when its holder ends in whatever way."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from lab.setup.console import say


@contextmanager
def only_one(path: Path, waiting_for: str) -> Iterator[None]:
    """Hold an exclusive lock on `path`; where another process has it, say so and wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        if not _try_lock(file):
            say(f"Another process is busy with {waiting_for}: waiting for it.")
            while not _try_lock(file):
                time.sleep(0.5)
        yield


def _try_lock(file: IO[str]) -> bool:
    try:
        if os.name == "nt":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
