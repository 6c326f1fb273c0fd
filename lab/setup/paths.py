"""Where things are. Standard library only."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_MODEL = "smollm2-135m-instruct"


def data_dir() -> Path:
    """The folder that holds ``models/``: the repository's ``data``, or ``LAB_DATA_DIR``.

    A classroom points LAB_DATA_DIR at one shared copy; once the model is there it may be read-only.
    """
    override = os.environ.get("LAB_DATA_DIR", "").strip()
    return Path(override).expanduser().absolute() if override else ROOT / "data"


def model_dir(name: str = DEFAULT_MODEL) -> Path:
    """The folder a downloaded and converted model lives in, whether or not it is there yet."""
    return data_dir() / "models" / name


def venv_dir() -> Path:
    return ROOT / ".venv"


def venv_python() -> Path:
    """The interpreter of ``.venv``, whether or not it exists yet."""
    return venv_dir() / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def inside_venv() -> bool:
    """True when this interpreter is the one of ``.venv``."""
    return Path(sys.prefix).resolve() == venv_dir().resolve()
