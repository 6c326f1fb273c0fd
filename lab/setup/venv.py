"""Make ``.venv`` and enter it. Standard library only."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from lab.setup import process
from lab.setup.console import SetupError, size
from lab.setup.paths import ROOT, venv_dir, venv_python
from lab.setup.pip import pip_log

PYTHONS = ((3, 11), (3, 13))  # oldest and newest that the pins support


def check_python(version: tuple[int, int] | None = None) -> None:
    version = version or sys.version_info[:2]
    if not PYTHONS[0] <= version <= PYTHONS[1]:
        raise SetupError(
            f"This needs Python 3.11, 3.12 or 3.13 and was started with {version[0]}.{version[1]}: "
            "start it with another one, for example `python3.11 -m lab` (from python.org, uv or conda)."
        )


def check_space(folder: Path, needed_mb: float) -> None:
    """Raise SetupError unless the disk that will hold `folder` has room for `needed_mb` more."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    free_mb = shutil.disk_usage(existing).free / 1e6
    if free_mb < needed_mb:
        raise SetupError(
            f"{folder} needs {size(needed_mb)} of free disk and there are {size(free_mb)}: free some space, "
            "then run the same command again."
        )


def make_venv() -> None:
    """Create ``.venv``, or complete one whose making was interrupted; keeps what is installed in it."""
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        raise SetupError(
            f"This Python lacks its {' and '.join(missing)} module: install it (Debian, Ubuntu: "
            f"`sudo apt install python3-venv`) or start with another Python 3.11-3.13."
        )
    try:
        venv_dir().mkdir(parents=True, exist_ok=True)
        if venv_python().is_symlink() and not venv_python().exists():
            shutil.rmtree(venv_dir())  # its Python is gone: nothing in it can be used
            venv_dir().mkdir()
    except OSError:
        raise SetupError(f"{ROOT} cannot be written: use a copy of the repository in a folder of your own.") from None
    options = ["--system-site-packages"] if importable_torch() else []
    result = process.run([sys.executable, "-m", "venv", *options, venv_dir()], log=pip_log(), watch=venv_dir())
    if result.code:
        raise process.explain(result, "Making .venv", where=venv_dir(), log=pip_log())


def importable_torch(version: str | None = None) -> bool:
    """True when this interpreter already has the pinned torch, which ``.venv`` can then share."""
    from lab.setup.stamp import pin

    try:
        found = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return False
    return found.split("+")[0] == (version or pin("torch"))


def complete_without_venv() -> bool:
    """True when this interpreter has every pin and the project: a conda or Binder environment."""
    from lab.setup.stamp import pins

    if venv_dir().exists():
        return False
    try:
        metadata.version("llm-batching-lab")
        return all(metadata.version(name).split("+")[0] == wanted for name, wanted in pins())
    except metadata.PackageNotFoundError:
        return False


def reenter(arguments: Sequence[str]) -> None:
    """Continue as ``python -m lab …`` inside ``.venv``; does not return."""
    command = [str(venv_python()), "-m", "lab", *arguments]
    sys.stdout.flush()
    if os.name != "nt":
        os.execv(command[0], command)
    try:
        raise SystemExit(subprocess.run(command).returncode)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
