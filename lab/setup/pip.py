"""Calls of the environment's pip, with settings that no user configuration can spoil."""

from __future__ import annotations

import shutil
from pathlib import Path

from lab.setup import process
from lab.setup.console import SetupError
from lab.setup.paths import data_dir, venv_dir, venv_python


def pip_log() -> Path:
    """Where the whole output of set-up's commands is kept: in ``.venv``, else beside the models."""
    return (venv_dir() if venv_dir().exists() else data_dir() / "models") / "lab-setup.log"


def pip(*arguments: str | Path, python: Path | None = None, folder: Path | None = None) -> process.Result:
    """Run pip in the environment; unfinished downloads stay below `folder`, where they can be measured."""
    folder = folder or venv_dir()
    scratch = folder / "tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    env = {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_USER": "0",
        "PIP_PROGRESS_BAR": "off",
        "PIP_RETRIES": "2",
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(scratch),
        "TEMP": str(scratch),
        "TMP": str(scratch),
    }
    command = [python or venv_python(), "-m", "pip", *arguments]
    try:
        return process.run(command, log=pip_log(), watch=folder, env=env)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def install(what: str, *arguments: str | Path) -> None:
    """``pip install``; raises SetupError with one sentence when it fails."""
    result = pip("install", *arguments)
    if result.code:
        raise failure(result, f"Installing {what}")


def failure(result: process.Result, what: str) -> SetupError:
    return process.explain(result, what, where=venv_dir(), log=pip_log())
