"""What a finished set-up step leaves behind, so that the next start knows what is still to do.

``.venv/lab-stamp.json`` maps a step to the fingerprint of what it was done for: changed pins, a moved
repository or a changed step number make the fingerprint differ, and the step is done again.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from lab.setup.paths import ROOT, venv_dir

STEP_VERSION = 1  # raise to make every existing .venv install again


class Stamp:
    def __init__(self, path: Path | None = None) -> None:
        self.path = path or venv_dir() / "lab-stamp.json"
        self.reload()

    def reload(self) -> None:
        """Read what is on disk; nothing counts as done where that cannot be read."""
        try:
            self.steps: dict[str, str] = dict(json.loads(self.path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            self.steps = {}

    def done(self, step: str) -> bool:
        return self.steps.get(step) == fingerprint(step)

    def mark(self, step: str) -> None:
        self.steps[step] = fingerprint(step)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.steps, indent=1), encoding="utf-8")
        os.replace(part, self.path)

    def forget(self, step: str) -> None:
        self.steps.pop(step, None)


def fingerprint(step: str) -> str:
    """Torch depends on its own pin, the project on where it lies, all else on the whole list of pins."""
    everything = str(pins())
    basis = {"torch": pin("torch"), "project": str(ROOT) + everything, "venv": ""}.get(step, everything)
    return hashlib.sha256(f"{STEP_VERSION}\n{step}\n{basis}".encode()).hexdigest()[:16]


def pins() -> list[tuple[str, str]]:
    """Every (name, version) of requirements.txt."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("#")[0].strip().split("==") for line in lines)
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]


def pin(name: str) -> str:
    """The version that requirements.txt pins for a package."""
    return dict(pins())[name]
